//! A socket's bytes as a stream of requests, with a note of when an unfinished line was begun.
//!
//! The ConnectionActor reads the stream, and closes a connection whose line takes too long.

use std::cell::Cell;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::net::unix::OwnedReadHalf;
use tokio::time::Instant;
use tokio_util::codec::{Decoder, FramedRead};

use crate::wire::{Request, RequestCodec, WireError};

/// First size of the read buffer; requests are short and connections many.
const READ_BUFFER_BYTES: usize = 512;

/// The requests of a socket. `unfinished` tells since when a begun line has been waiting.
pub(super) fn requests(
    reader: OwnedReadHalf,
    unfinished: Rc<Cell<Option<Instant>>>,
) -> FramedRead<OwnedReadHalf, TimedCodec> {
    let codec = TimedCodec { codec: RequestCodec::default(), unfinished };
    FramedRead::with_capacity(reader, codec, READ_BUFFER_BYTES)
}

/// The codec, and a note of when a line was begun.
pub(super) struct TimedCodec {
    codec: RequestCodec,
    unfinished: Rc<Cell<Option<Instant>>>,
}

impl Decoder for TimedCodec {
    type Item = Request;
    type Error = WireError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Request>, WireError> {
        let request = self.codec.decode(bytes)?;
        let waiting = request.is_none() && !bytes.is_empty();
        let since = self.unfinished.get().unwrap_or_else(Instant::now);
        self.unfinished.set(waiting.then_some(since));
        Ok(request)
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> Result<Option<Request>, WireError> {
        self.codec.decode_eof(bytes)
    }
}
