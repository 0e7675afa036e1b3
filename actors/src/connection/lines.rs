//! A socket's bytes as a stream of lines, with a note of when an unfinished line was begun.
//!
//! The ConnectionActor reads the stream, and closes a connection whose line takes too long.

use std::cell::Cell;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::net::unix::OwnedReadHalf;
use tokio::time::Instant;
use tokio_util::codec::{Decoder, FramedRead};

use shiftboss_protocol::wire::{Line, LineCodec, WireError};

/// First size of the read buffer; requests are short and connections many.
const READ_BUFFER_BYTES: usize = 512;

/// The lines of a socket. `unfinished` tells since when a begun line has been waiting.
pub(super) fn lines(
    reader: OwnedReadHalf,
    may_opt_in: bool,
    is_operator: bool,
    unfinished: Rc<Cell<Option<Instant>>>,
) -> FramedRead<OwnedReadHalf, TimedCodec> {
    let codec = TimedCodec { codec: LineCodec::new(may_opt_in, is_operator), unfinished };
    FramedRead::with_capacity(reader, codec, READ_BUFFER_BYTES)
}

/// The codec, and a note of when a line was begun.
pub(super) struct TimedCodec {
    codec: LineCodec,
    unfinished: Rc<Cell<Option<Instant>>>,
}

impl Decoder for TimedCodec {
    type Item = Line;
    type Error = WireError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Line>, WireError> {
        let line = self.codec.decode(bytes)?;
        let waiting = line.is_none() && self.codec.is_waiting(bytes);
        let since = self.unfinished.get().unwrap_or_else(Instant::now);
        self.unfinished.set(waiting.then_some(since));
        Ok(line)
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> Result<Option<Line>, WireError> {
        self.codec.decode_eof(bytes)
    }
}
