//! Stands between a relay and its broker, and counts how often the relay asks for something.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Its threads end with the connections that they pass on, or with the process.
pub struct Tap {
    /// The broker, by way of this.
    pub url: String,
    counted: Arc<AtomicUsize>,
}

impl Tap {
    /// Counts what stands in requests as `text`.
    pub fn new(broker: &str, text: &'static [u8]) -> io::Result<Self> {
        let place = broker.rsplit_once('@').and_then(|(_, rest)| rest.split('/').next());
        let place = place.ok_or_else(|| io::Error::other("a broker's URL without a user"))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = broker.replace(place, &listener.local_addr()?.to_string());
        let (place, counted) = (place.to_owned(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&counted);
        thread::spawn(move || {
            for relay in listener.incoming() {
                let (Ok(relay), Ok(broker)) = (relay, TcpStream::connect(&place)) else { continue };
                // A connection that fails is the relay's to report.
                let _ = pass_both(&relay, &broker, text, &count);
            }
        });
        Ok(Self { url, counted })
    }

    pub fn count(&self) -> usize {
        self.counted.load(Ordering::Relaxed)
    }
}

fn pass_both(
    relay: &TcpStream,
    broker: &TcpStream,
    text: &'static [u8],
    counted: &Arc<AtomicUsize>,
) -> io::Result<()> {
    [relay, broker].into_iter().try_for_each(|stream| stream.set_nodelay(true))?;
    let (asking, mut asked) = (relay.try_clone()?, broker.try_clone()?);
    let (answering, mut answered) = (broker.try_clone()?, relay.try_clone()?);
    let counted = Arc::clone(counted);
    thread::spawn(move || {
        pass(asking, &mut asked, |bytes| {
            let found = bytes.windows(text.len()).filter(|window| *window == text).count();
            counted.fetch_add(found, Ordering::Relaxed);
        })
    });
    thread::spawn(move || pass(answering, &mut answered, |_| {}));
    Ok(())
}

fn pass(mut from: TcpStream, to: &mut TcpStream, mut see: impl FnMut(&[u8])) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        see(&bytes[..read]);
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // The other side may have ended.
    let _ = to.shutdown(Shutdown::Both);
}
