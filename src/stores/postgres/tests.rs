//! Connections to a real server (`make test-postgres` starts one). What is done with one the black-box tests show.

mod tls;
