//! Settings and state that the connections to all servers share.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use sdam::{
    Clock, Runtime,
    runtime::Backend,
    tls::{
        Rustls,
        rustls::{
            ClientConnection,
            pki_types::{CertificateDer, UnixTime},
        },
    },
};
use sdam_core::{
    address::ServerAddress,
    hello::{Handshake, HelloRequest},
    options::{ConfigError, Options, TlsOptions},
    time::Instant,
};
use sdam_transport::{
    connect::Transport,
    handshake::{ClientMetadata, Environment},
    layers::{Layers, Translate as _},
    race,
    tls::TlsProvider as _,
};
use webpki::{EndEntityCert, KeyUsage};

use crate::{doctor::observation::TlsSession, target::Target};

/// The application name under which the doctor's connections appear in the servers' logs.
const NAME: &str = "sdam doctor";

/// The time limit of a step if neither the user nor the client has one, which is the limit of a
/// client's connections by default.
const STEP: Duration = Duration::from_secs(10);

/// The time limits of a check-up.
pub(super) struct Limits {
    clock: Arc<dyn Clock>,
    end: Instant,
    /// The time limit of a single step.
    pub(super) step: Duration,
    /// The time limit of all steps together.
    pub(super) all: Duration,
}

impl Limits {
    /// Creates the limits of a check-up that begins now. A step may take as long as the user says,
    /// or else as long as a `client` waits for a connection.
    pub(super) fn new(backend: &Backend, own: Option<Duration>, client: Option<Duration>) -> Self {
        let step = own.or(client).unwrap_or(STEP);
        // Several steps follow each other, so a client with a short limit may still need longer.
        let all = own.unwrap_or(step.max(STEP)).saturating_mul(18) / 5;
        let end = backend.clock.now() + all;
        Self { clock: Arc::clone(&backend.clock), end, step, all }
    }

    /// Returns the remaining time, but at least a millisecond, because zero would mean that there
    /// is no limit.
    pub(super) fn left(&self) -> Duration {
        self.end.since(self.clock.now()).max(Duration::from_millis(1))
    }

    /// Returns the deadline of a step that begins now.
    pub(super) fn deadline(&self) -> Instant {
        (self.clock.now() + self.step).min(self.end)
    }

    /// Runs `step` with its time limit, which begins now. Returns `None` if the step takes too
    /// long.
    pub(super) async fn within<F: Future>(&self, step: F) -> Option<F::Output> {
        let ended = race::deadline(&*self.clock, Some(self.deadline()), step).await;
        ended.ok()
    }
}

/// The settings and the state that all connections of a check-up share.
pub(super) struct Line<'l> {
    pub(super) target: &'l Target,
    pub(super) options: &'l Options,
    pub(super) runtime: &'l Runtime,
    pub(super) limits: &'l Limits,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) hello: HelloRequest,
    /// True once a login has begun. The doctor logs in to only one server, because repeated
    /// failures may lock the account.
    pub(super) has_login: AtomicBool,
    sessions: Arc<Mutex<BTreeMap<ServerAddress, TlsSession>>>,
}

impl<'l> Line<'l> {
    /// Prepares connections, and reads the TLS files.
    pub(super) fn new(
        target: &'l Target,
        options: &'l Options,
        runtime: &'l Runtime,
        limits: &'l Limits,
    ) -> Result<Self, ConfigError> {
        let sessions = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let kept = Arc::clone(&sessions);
        let provider = Rustls::ring().with_observer(move |server, session| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.insert(server.clone(), describe(session));
        });
        let transport = transport(target, options, runtime, options.tls.as_ref(), &provider)?;
        let environment = Environment::default();
        let metadata = ClientMetadata::new("sdam", env!("CARGO_PKG_VERSION"), &environment)
            .and_then(|metadata| metadata.with_application(NAME))?;
        let mut handshake = Handshake::new(metadata.encode());
        handshake.load_balanced = options.load_balanced;
        let api = options.server_api.clone().map(Arc::new);
        Ok(Self {
            target,
            options,
            runtime,
            limits,
            transport,
            hello: HelloRequest::handshake(Arc::new(handshake), api, options.handshake_opcode),
            has_login: AtomicBool::new(false),
            sessions,
        })
    }

    /// Returns the address to dial for `member`.
    pub(super) fn place(&self, member: &ServerAddress) -> ServerAddress {
        match &self.target.translate {
            Some(table) => table.translate(member),
            None => member.clone(),
        }
    }

    /// Returns the results of the TLS handshake with `server`.
    pub(super) fn session(&self, server: &ServerAddress) -> Option<TlsSession> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(server).cloned()
    }

    /// Returns a transport with the opposite TLS setting.
    pub(super) fn reverse(&self) -> Result<Arc<dyn Transport>, ConfigError> {
        let mut any = TlsOptions::default();
        any.allow_invalid_certificates = true;
        let tls = self.options.tls.is_none().then_some(&any);
        transport(self.target, self.options, self.runtime, tls, &Rustls::ring())
    }
}

/// Returns the runtime's transport with the same layers as in a client, but with the TLS settings
/// `tls`.
fn transport(
    target: &Target,
    options: &Options,
    runtime: &Runtime,
    tls: Option<&TlsOptions>,
    provider: &Rustls,
) -> Result<Arc<dyn Transport>, ConfigError> {
    let mut layers = Layers::default();
    if let Some(table) = &target.translate {
        layers.translate = Some(Arc::new(table.clone()));
    }
    layers.proxy.clone_from(&options.proxy);
    layers.tls = tls.map(|tls| provider.tls(tls)).transpose()?;
    runtime.backend.transport.with_layers(layers).ok_or_else(|| {
        ConfigError::new("tls", "", "this transport has no layers", "take another one")
    })
}

/// Describes the server's side of `session`.
fn describe(session: &ClientConnection) -> TlsSession {
    let version = session.protocol_version();
    let suite = session.negotiated_cipher_suite();
    let own = session.peer_certificates().and_then(<[_]>::first);
    let (not_after, names) = own.map(certificate).unwrap_or_default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    TlsSession {
        protocol: version.map(|version| format!("{version:?}")).unwrap_or_default(),
        cipher: suite.map(|suite| format!("{:?}", suite.suite())).unwrap_or_default(),
        not_after,
        names,
        now: now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX)),
    }
}

/// Returns the expiry of a certificate, in seconds since 1970, and its names.
fn certificate(der: &CertificateDer<'_>) -> (Option<i64>, Vec<String>) {
    let Ok(parsed) = EndEntityCert::try_from(der) else {
        return (None, Vec::new());
    };
    // Only the error says when a certificate expires, so it is verified for the end of time.
    let end = UnixTime::since_unix_epoch(Duration::MAX);
    let usage = KeyUsage::server_auth();
    let expiry = match parsed.verify_for_usage(&[], &[], &[], end, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            i64::try_from(not_after.as_secs()).ok()
        }
        _ => None,
    };
    (expiry, parsed.valid_dns_names().map(str::to_owned).collect())
}
