//! A broker by its URL, and a connection to it.
//!
//! Both sides make a connection, and make it anew when it fails. They decide what goes over it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::AMQPUri;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, Event,
};
use shiftboss_protocol::backoff::random;
use shiftboss_protocol::url::Url;
use shiftboss_queue::error::{StoreError, StoreResult};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::message::{BODY_BYTES_MAX, Unfit, VERSION};
use crate::refusal::{self, NOT_FOUND};
use crate::topology::{QueueKind, Topology};

/// The longest time for a connection, or for an answer of the broker itself.
pub(crate) const CALL_MAX: Duration = Duration::from_secs(5);
const SCHEMES: [&str; 2] = ["amqp://", "amqps://"];
/// What may be wrong with a URL that cannot be read.
const ESCAPES: &str = " (in a user's name or password write # as %23, / as %2F, ? as %3F, @ as %40, : as %3A and % as %25)";
/// Seconds of silence after which either side takes the connection for dead.
const HEARTBEAT_SECONDS: u16 = 10;
/// A larger message goes in several frames. The client keeps buffers of 32 frames for each direction.
const FRAME_BYTES: u32 = 64 * 1024;
/// If a broker has not taken a message after this time, it is holding it back.
const HELD_BACK_AFTER: Duration = Duration::from_secs(2);
/// The delivery mode of a message that must survive a restart of the broker.
pub(crate) const PERSISTENT: u8 = 2;
const VERSION_HEADER: &str = "shiftboss-version";

/// Delays before a connection that failed is made again, by either side.
pub(crate) const RECONNECT: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(60));

/// Why a URL is not a broker's. It is shown without its password.
#[derive(Debug, thiserror::Error)]
#[error("the broker's URL {0}. Give one as amqp://user:password@host:5672/vhost")]
pub struct BadUrl(String);

/// A broker, and an installation's names on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    url: Url,
    pub(crate) topology: Topology,
}

/// A connection with a channel on which what is published is confirmed, and one on which it is not.
pub(crate) struct Link {
    connection: Arc<Connection>,
    pub(crate) alarm: Alarm,
    pub(crate) channel: Channel,
    /// For messages that are sent again if they are lost.
    pub(crate) unconfirmed: Channel,
}

impl Broker {
    pub fn new(url: Url, prefix: &str, queues: QueueKind) -> Result<Self, BadUrl> {
        let broker = Self { url, topology: Topology::new(prefix, queues) };
        broker.check().map_err(BadUrl)?;
        Ok(broker)
    }

    /// Returns why the URL is not valid.
    fn check(&self) -> Result<(), String> {
        let url = &self.url;
        let unfit = |why: String| format!("{url} cannot be used: {why}");
        if url.as_typed().is_empty() {
            return Err("is empty".to_owned());
        }
        if !url.begins_with(&SCHEMES) {
            return Err(unfit("it does not begin with amqp:// or amqps://".to_owned()));
        }
        // Everything after it would be silently dropped, the host, too.
        if url.as_typed().contains('#') {
            return Err(unfit(format!("it has a #{ESCAPES}")));
        }
        self.addresses().map(drop).map_err(|why| unfit(why + ESCAPES))
    }

    fn addresses(&self) -> Result<Vec<AMQPUri>, String> {
        let (front, hosts, rest) = self.url.parts();
        if hosts.contains(',') && hosts.split(',').any(str::is_empty) {
            return Err("empty host".to_owned());
        }
        hosts.split(',').map(|host| Self::address(&format!("{front}{host}{rest}"))).collect()
    }

    fn address(url: &str) -> Result<AMQPUri, String> {
        let mut address: AMQPUri = url.parse()?;
        // A path of a slash alone: no virtual host has an empty name.
        if address.vhost.is_empty() {
            address.vhost = AMQPUri::default().vhost;
        }
        address.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        address.query.frame_max.get_or_insert(FRAME_BYTES);
        Ok(address)
    }

    /// Connects, under a name that the broker shows, to the first host that answers. It starts with a random host, so
    /// that clients are spread, and a client whose host is up but does not work finds another.
    ///
    /// # Errors
    /// `Fatal` if the broker refuses, which a later try does not change; else `Busy`. With several hosts, that of the
    /// last one.
    pub(crate) async fn connect(&self, name: &str) -> StoreResult<Link> {
        let mut addresses = self.addresses().map_err(StoreError::Fatal)?;
        let first = random() % addresses.len() as u64;
        addresses.rotate_left(first as usize);
        let mut failed = self.late();
        for address in addresses {
            match self.connect_to(address, name).await {
                Ok(link) => return Ok(link),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn connect_to(&self, address: AMQPUri, name: &str) -> StoreResult<Link> {
        let named = ConnectionProperties::default().with_connection_name(name.into());
        let connected = async {
            let connection = Connection::connect_uri(address, named).await?;
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            let unconfirmed = connection.create_channel().await?;
            let alarm = Alarm::listen(&connection, self.to_string());
            let connection = Arc::new(connection);
            Ok(Link { connection, alarm, channel, unconfirmed })
        };
        self.answer(connected).await
    }

    /// What the broker answers, in time.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub(crate) async fn answer<T>(
        &self,
        asked: impl Future<Output = lapin::Result<T>>,
    ) -> StoreResult<T> {
        let answered = timeout(CALL_MAX, asked).await.map_err(|_| self.late())?;
        answered.map_err(|error| self.classify(&error))
    }

    pub(crate) fn late(&self) -> StoreError {
        let seconds = CALL_MAX.as_secs();
        StoreError::Busy(format!("the broker {self} did not answer within {seconds} s"))
    }

    /// # Errors
    /// `Fatal` if the broker only takes messages smaller than ours.
    pub(crate) async fn require_large(&self, link: &Link) -> StoreResult<()> {
        let Some(most) = link.size_max(&self.topology).await else { return Ok(()) };
        Err(StoreError::Fatal(format!(
            "the broker {self} takes messages of {most} bytes, and shiftboss sends up to 16 MiB: set its max_message_size to \
             {BODY_BYTES_MAX} or more"
        )))
    }

    /// As [`classify`](Self::classify), for uses of queues that a daemon declares.
    pub(crate) fn not_declared(&self, error: &lapin::Error) -> StoreError {
        match refusal::code(error) {
            Some(NOT_FOUND) if !refusal::is_node_down(error) => StoreError::Busy(format!(
                "no daemon has used the broker {self} yet: start one with --broker"
            )),
            _ => self.classify(error),
        }
    }

    pub(crate) fn classify(&self, error: &lapin::Error) -> StoreError {
        let why = error.to_string();
        let remedy = refusal::remedy(&why, &self.url);
        let text = format!("the connection to the broker {self} failed: {why}{remedy}");
        match refusal::is_lasting(error) {
            true => StoreError::Fatal(text),
            false => StoreError::Busy(text),
        }
    }
}

/// Without its password.
impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl Link {
    /// Another channel on the same connection, on which nothing is confirmed.
    pub(crate) async fn channel(&self) -> lapin::Result<Channel> {
        self.connection.create_channel().await
    }

    pub(crate) async fn confirming_channel(&self) -> lapin::Result<Channel> {
        let channel = self.channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Whether the broker takes messages just now, which only publishing shows. A broker that is short of resources
    /// takes the first message of a connection, and then stops reading from it. So two messages are published that go
    /// to no queue.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(crate) async fn takes_messages(&self, topology: &Topology) -> lapin::Result<bool> {
        let nowhere = topology.nowhere();
        for _ in 0..2 {
            let published = publish(&self.channel, ("", &nowhere), b"", properties());
            match timeout(HELD_BACK_AFTER, published).await {
                Ok(Err(PublishError::Broker(error))) => return Err(error),
                Ok(_) => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The broker's `max_message_size`, if it is less than ours. It is only learnt by sending a larger message; if
    /// there is no error in time, the broker takes such messages.
    pub(crate) async fn size_max(&self, topology: &Topology) -> Option<usize> {
        let published = async {
            let channel = self.confirming_channel().await?;
            let (nowhere, body) = (topology.nowhere(), vec![b' '; BODY_BYTES_MAX]);
            // Without `mandatory`, the message is not returned.
            let options = BasicPublishOptions::default();
            let sent =
                channel.basic_publish("".into(), nowhere.into(), options, &body, properties());
            sent.await?.await
        };
        let refused = timeout(CALL_MAX, published).await.ok()?.err()?;
        refusal::message_size_max(&refused.to_string())
    }

    /// Ends the connection; the broker may be away.
    pub(crate) async fn close(&self) {
        close(&self.connection).await;
    }
}

/// The client keeps a connection with a pending call open, even if its answer is no longer awaited: a consumer that the
/// broker makes then would be a queue's single active one, and never be read.
impl Drop for Link {
    fn drop(&mut self) {
        if let Ok(runtime) = Handle::try_current() {
            let connection = Arc::clone(&self.connection);
            runtime.spawn(async move { close(&connection).await });
        }
    }
}

async fn close(connection: &Connection) {
    let _ = timeout(CALL_MAX, connection.close(200, "done".into())).await;
}

/// A broker's alarm: it is short of memory or disk, takes nothing from a connection, and says so
/// (`connection.blocked`).
///
/// The client keeps what is published meanwhile, without a limit: code that publishes repeatedly must first wait for
/// the [end](Self::over). The client itself sends nothing either, not even heartbeats; the broker does not expect any,
/// and so does not close the connection.
pub(crate) struct Alarm {
    raised: watch::Receiver<bool>,
    _listening: AbortOnDropHandle<()>,
}

impl Alarm {
    /// Listens to the broker's notices about a connection, and logs them. `broker`: its name in the log.
    fn listen(connection: &Connection, broker: String) -> Self {
        let (raise, raised) = watch::channel(connection.status().blocked());
        let mut events = Box::pin(connection.events_listener());
        let listening = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => {
                        warn!(
                            broker,
                            reason, "The broker has an alarm, and takes no messages: they wait."
                        );
                        raise.send_replace(true);
                    }
                    Event::ConnectionUnblocked => {
                        info!(broker, "The broker takes messages again.");
                        raise.send_replace(false);
                    }
                    _ => {}
                }
            }
        });
        Self { raised, _listening: AbortOnDropHandle::new(listening) }
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.raised.borrow()
    }

    /// Waits until the broker takes messages. If the connection has ended, its next use shows that.
    pub(crate) async fn over(&self) {
        let _ = self.raised.clone().wait_for(|is_raised| !is_raised).await;
    }
}

/// Publishes to an exchange (`""`: to the queue that the key names), and waits until the broker has it.
///
/// # Errors
/// The broker's error; or that there is no such queue, or no room in it.
pub(crate) async fn publish(
    channel: &Channel,
    (exchange, key): (&str, &str),
    body: &[u8],
    properties: BasicProperties,
) -> Result<(), PublishError> {
    begin_publish(channel, (exchange, key), body, properties).await?.await
}

/// The same in two steps: messages keep their order, and the returned future awaits the broker's confirmation.
pub(crate) async fn begin_publish(
    channel: &Channel,
    (exchange, key): (&str, &str),
    body: &[u8],
    properties: BasicProperties,
) -> Result<impl Future<Output = Result<(), PublishError>> + Send + use<>, PublishError> {
    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let (exchange, key) = (exchange.into(), key.into());
    let confirm = channel.basic_publish(exchange, key, mandatory, body, properties).await?;
    Ok(async {
        match confirm.await? {
            Confirmation::Ack(None) | Confirmation::NotRequested => Ok(()),
            Confirmation::Ack(Some(_)) => Err(PublishError::Unroutable),
            Confirmation::Nack(_) => Err(PublishError::NoRoom),
        }
    })
}

pub(crate) async fn consume(channel: &Channel, queue: &str) -> lapin::Result<Consumer> {
    let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
    channel.basic_consume(queue.into(), "".into(), options, none).await
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error("the broker has no such queue")]
    Unroutable,
    #[error("the broker did not take it: the nodes that have its queue are down, or that is full")]
    NoRoom,
    #[error("the connection is lost, and the answer with it")]
    NoAnswer,
    #[error("the answer cannot be used: {0}")]
    Unreadable(Unfit),
    #[error(transparent)]
    Broker(#[from] lapin::Error),
}

pub(crate) fn properties() -> BasicProperties {
    properties_of(VERSION, FieldTable::default())
}

/// The same for a message of another version, and with further headers.
pub(crate) fn properties_of(version: i64, mut headers: FieldTable) -> BasicProperties {
    headers.insert(ShortString::from(VERSION_HEADER), AMQPValue::LongLongInt(version));
    BasicProperties::default().with_headers(headers).with_content_type("application/json".into())
}

/// The version that a message has in its headers; 0: none.
pub(crate) fn version(properties: &BasicProperties) -> i64 {
    let header =
        properties.headers().as_ref().and_then(|headers| headers.inner().get(VERSION_HEADER));
    match header {
        Some(AMQPValue::LongLongInt(version)) => *version,
        Some(AMQPValue::LongInt(version)) => i64::from(*version),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(url: &str) -> Result<Broker, BadUrl> {
        Broker::new(Url::new(url), "p.", QueueKind::default())
    }

    /// A URL that is not a broker's is refused, and no password is shown.
    #[test]
    fn a_broker_s_url() {
        for good in ["amqp://h", "amqps://u:secret@h:5671/%2f", "amqp://u@h/v?heartbeat=5"] {
            assert!(broker(good).is_ok(), "{good}");
        }
        for (wrong, why) in [
            ("http://h", "URL http://h cannot be used: it does not begin with amqp://"),
            ("amqp:/h", "URL amqp:/h cannot"),
            (
                "amqp://u:secret@h:port/v",
                "URL amqp://u@h:port/v cannot be used: invalid port number",
            ),
            ("amqp://u:se#cret@h/v", "%23"),
            ("amqp://u:12#secret@h/v", "%23"),
            ("amqp://u:se/cret@h/v", "%2F"),
            ("amqp://u:secret@a:5672,b:port/v", "invalid port number"),
            ("127.0.0.1:5672", "URL 127.0.0.1:5672 cannot"),
            ("", "URL is empty"),
        ] {
            let text = broker(wrong).unwrap_err().to_string();
            assert!(text.contains(why) && !text.contains("secret"), "{wrong}: {text}");
        }
    }

    /// A URL without a path, or with an empty one, is for the virtual host that every broker has.
    #[test]
    fn the_virtual_host() {
        for (url, virtual_host) in [
            ("amqp://h", "/"),
            ("amqp://h/", "/"),
            ("amqps://u@h:5671/?heartbeat=5", "/"),
            ("amqp://h/%2f", "/"),
            ("amqp://h/v", "v"),
        ] {
            assert_eq!(broker(url).unwrap().addresses().unwrap()[0].vhost, virtual_host, "{url}");
        }
    }

    /// A URL may name several hosts, each with its port; the rest of it is for all of them.
    #[test]
    fn several_hosts() {
        let several = broker("amqps://u:s,cret@a:5,b,127.0.0.1:7/v?heartbeat=5").unwrap();
        assert_eq!(several.to_string(), "amqps://u@a:5,b,127.0.0.1:7/v?heartbeat=5");
        let addresses = several.addresses().unwrap();
        let hosts: Vec<_> = addresses
            .iter()
            .map(|address| (&*address.authority.host, address.authority.port))
            .collect();
        assert_eq!(hosts, [("a", 5), ("b", 5671), ("127.0.0.1", 7)]);
        for AMQPUri { vhost, query, authority, .. } in &addresses {
            let password = &*authority.userinfo.password;
            assert_eq!((&**vhost, query.heartbeat, password), ("v", Some(5), "s,cret"));
        }
        assert!(broker("amqp://a,,b/").unwrap_err().to_string().contains("empty host"));
    }
}
