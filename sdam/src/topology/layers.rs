//! The transport of a topology: the runtime's transport, with the layers that the options require.

use std::sync::Arc;

use sdam_core::options::{ConfigError, Options};
use sdam_transport::{
    connect::Transport,
    layers::{Layers, Translate},
    runtime::Backend,
};

/// Returns the transport that connects as `options` and `translate` require.
///
/// # Errors
///
/// If the runtime has no TLS, its transport does not support a required layer, or has TLS with other
/// options: connecting in plain text, or without the proxy, would violate the user's security
/// settings.
pub(super) fn transport(
    backend: &Backend,
    options: &Options,
    translate: Option<&Arc<dyn Translate>>,
) -> Result<Arc<dyn Transport>, ConfigError> {
    let guards = backend.transport.guards();
    let mut transport = Arc::clone(&backend.transport);
    let mut add = |set: &dyn Fn(&mut Layers), refusal| {
        let mut layers = Layers::default();
        set(&mut layers);
        transport = transport.with_layers(layers).ok_or(refusal)?;
        Ok(())
    };
    if translate.is_some() {
        let refusal = refusal("translate", "", TRANSLATES);
        add(&|layers| layers.translate = translate.cloned(), refusal)?;
    }
    if let Some(timeout) = options.tcp_user_timeout {
        let refusal = refusal("tcpUserTimeout", &format!("{timeout:?}"), USER_TIMEOUT);
        add(&|layers| layers.user_timeout = Some(timeout), refusal)?;
    }
    if let Some(proxy) = options.proxy.as_ref().filter(|_| !guards.proxy) {
        let refusal = refusal("proxyHost", &proxy.host, PROXY);
        add(&|layers| layers.proxy = Some(proxy.clone()), refusal)?;
    }
    if let Some(tls) = options.tls.as_ref().filter(|_| guards.tls)
        && let Some((option, value)) = tls.first_set()
    {
        return Err(refusal(option, value, OWN_TLS));
    }
    if let Some(tls) = options.tls.as_ref().filter(|_| !guards.tls) {
        let provider = backend.tls.as_ref().ok_or_else(|| refusal("tls", "true", LIBRARY))?;
        let tls = provider.tls(tls)?;
        add(&|layers| layers.tls = Some(Arc::clone(&tls)), refusal("tls", "true", TLS))?;
    }
    Ok(transport)
}

/// Checks that there is a client certificate if users are authenticated by certificate, because
/// every server would refuse them otherwise.
pub(super) fn require_certificate(backend: &Backend, options: &Options) -> Result<(), ConfigError> {
    if !is_x509(options) || backend.transport.guards().tls {
        return Ok(());
    }
    let Some(tls) = &options.tls else {
        return Err(refusal("authMechanism", X509, PLAIN_TEXT));
    };
    let provider = backend.tls.as_ref().ok_or_else(|| refusal("tls", "true", LIBRARY))?;
    if provider.has_client_certificate(tls) {
        Ok(())
    } else {
        Err(refusal("tlsCertificateKeyFile", "", CERTIFICATE))
    }
}

/// Returns whether users are authenticated by the client's certificate.
fn is_x509(options: &Options) -> bool {
    let credential = options.credential.as_ref();
    credential.is_some_and(|credential| credential.mechanism.as_deref() == Some(X509))
}

fn refusal(option: &str, value: &str, (reason, remedy): (&str, &str)) -> ConfigError {
    ConfigError::new(option, value, reason, remedy)
}

/// The reason for a refusal, and the remedy.
type Refusal = (&'static str, &'static str);

const X509: &str = "MONGODB-X509";

const CERTIFICATE: Refusal = (
    "MONGODB-X509 takes the user from the client's certificate, and there is none",
    "name the file of the certificate and its key",
);
const PLAIN_TEXT: Refusal = (
    "it takes the user from the client's certificate, and connections are not encrypted",
    "add tls=true and tlsCertificateKeyFile, or use SCRAM-SHA-256",
);
const TRANSLATES: Refusal = (
    "the runtime's transport cannot translate addresses",
    "let the transport translate them itself; around another transport, use `Wrapped`",
);
const USER_TIMEOUT: Refusal = (
    "the runtime's transport has no sockets whose options could be set",
    "leave it out, or set it on the sockets of the transport itself; around another transport, use \
     `Wrapped`",
);
const PROXY: Refusal = (
    "the runtime's transport cannot connect through a proxy",
    "leave it out, or let the transport connect through the proxy itself and say so by \
     `Transport::guards`; around another transport, use `Wrapped`",
);
const LIBRARY: Refusal = (
    "the runtime has no TLS library",
    "enable the feature `tls` of sdam, or set `Backend::tls` to a library of your own; leave it out only if \
     plain text is acceptable",
);
const OWN_TLS: Refusal = (
    "the runtime's transport negotiates TLS with options of its own, so this one would be ignored",
    "leave it out, and set it where the transport is created",
);
const TLS: Refusal = (
    "the runtime's transport has no byte streams that could be encrypted",
    "let the transport negotiate TLS itself and say so by `Transport::guards`; around another \
     transport, use `Wrapped`",
);
