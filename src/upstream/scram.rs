//! The client's side of SCRAM (RFC 5802, RFC 7677) as Kafka speaks it. Pure: the nonce is handed in.
//!
//! The server must prove that it knows the password too: its signature is checked, in constant time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256, Sha512};

/// Kafka's own lower bound, and an upper one that costs a fraction of a second: a hostile server must not be able
/// to make us compute for ever.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=65_536;

/// Why the exchange stopped. Carries nothing that was exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ScramError {
    #[error("the server's SCRAM message cannot be read")]
    Malformed,
    #[error("the server's SCRAM nonce does not begin with ours")]
    ForeignNonce,
    #[error("the server asks for {0} SCRAM iterations, outside 4096 to 65536")]
    Iterations(u32),
    #[error("the server refused the credential")]
    Refused,
    #[error("the server could not prove that it knows the password")]
    BadSignature,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn of(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        // HMAC takes keys of any length, so the error branch is not reached; it would only fail the exchange.
        match self {
            Self::Sha256 => Hmac::<Sha256>::new_from_slice(key)
                .map(|mac| mac.chain_update(bytes).finalize().into_bytes().to_vec())
                .unwrap_or_default(),
            Self::Sha512 => Hmac::<Sha512>::new_from_slice(key)
                .map(|mac| mac.chain_update(bytes).finalize().into_bytes().to_vec())
                .unwrap_or_default(),
        }
    }

    /// Whether `signature` is the HMAC of `bytes`, in constant time.
    fn verify(self, key: &[u8], bytes: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Sha256 => Hmac::<Sha256>::new_from_slice(key)
                .is_ok_and(|mac| mac.chain_update(bytes).verify_slice(signature).is_ok()),
            Self::Sha512 => Hmac::<Sha512>::new_from_slice(key)
                .is_ok_and(|mac| mac.chain_update(bytes).verify_slice(signature).is_ok()),
        }
    }

    fn salted_password(self, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Self::Sha256 => {
                let mut key = [0; 32];
                pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), salt, iterations, &mut key);
                key.to_vec()
            }
            Self::Sha512 => {
                let mut key = [0; 64];
                pbkdf2::pbkdf2_hmac::<Sha512>(password.as_bytes(), salt, iterations, &mut key);
                key.to_vec()
            }
        }
    }
}

/// One exchange, before the server's first message.
pub(super) struct Scram<'a> {
    hash: Hash,
    password: &'a str,
    nonce: String,
    first_bare: String,
}

/// One exchange, after our proof was sent.
pub(super) struct Proven {
    hash: Hash,
    server_key: Vec<u8>,
    auth_message: String,
}

impl<'a> Scram<'a> {
    pub(super) fn new(hash: Hash, username: &str, password: &'a str, nonce: String) -> Self {
        let username = username.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={username},r={nonce}");
        Self { hash, password, nonce, first_bare }
    }

    pub(super) fn first_message(&self) -> Vec<u8> {
        format!("n,,{}", self.first_bare).into_bytes()
    }

    /// Takes the server's first message and gives our proof.
    pub(super) fn prove(self, server_first: &[u8]) -> Result<(Vec<u8>, Proven), ScramError> {
        let server_first = std::str::from_utf8(server_first).map_err(|_| ScramError::Malformed)?;
        let nonce = attribute(server_first, 'r')?;
        let salt = STANDARD.decode(attribute(server_first, 's')?).map_err(|_| ScramError::Malformed)?;
        let iterations: u32 = attribute(server_first, 'i')?.parse().map_err(|_| ScramError::Malformed)?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ScramError::ForeignNonce);
        }
        if !ITERATIONS.contains(&iterations) {
            return Err(ScramError::Iterations(iterations));
        }
        let salted = self.hash.salted_password(self.password, &salt, iterations);
        let client_key = self.hash.hmac(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = self.hash.hmac(&self.hash.of(&client_key), auth_message.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(key, mask)| key ^ mask).collect();
        let message = format!("{without_proof},p={}", STANDARD.encode(proof)).into_bytes();
        let server_key = self.hash.hmac(&salted, b"Server Key");
        Ok((message, Proven { hash: self.hash, server_key, auth_message }))
    }
}

impl Proven {
    /// Takes the server's last message.
    pub(super) fn finish(self, server_final: &[u8]) -> Result<(), ScramError> {
        let server_final = std::str::from_utf8(server_final).map_err(|_| ScramError::Malformed)?;
        if server_final.starts_with("e=") {
            return Err(ScramError::Refused);
        }
        let signature = STANDARD.decode(attribute(server_final, 'v')?).map_err(|_| ScramError::Malformed)?;
        if self.hash.verify(&self.server_key, self.auth_message.as_bytes(), &signature) {
            Ok(())
        } else {
            Err(ScramError::BadSignature)
        }
    }
}

/// The value of `name=` in a comma-separated message.
fn attribute(message: &str, name: char) -> Result<&str, ScramError> {
    let value = message.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    value.ok_or(ScramError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const FIRST: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn exchange() -> Scram<'static> {
        Scram::new(Hash::Sha256, "user", "pencil", NONCE.to_owned())
    }

    #[test]
    fn the_example_of_rfc_7677() {
        assert_eq!(exchange().first_message(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (proof, proven) = exchange().prove(FIRST).expect("proves");
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(std::str::from_utf8(&proof), Ok(expected));
        assert_eq!(proven.finish(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
    }

    /// Made with Python's hashlib and hmac.
    #[test]
    fn sha_512_agrees_with_another_implementation() {
        let exchange = Scram::new(Hash::Sha512, "user", "pencil", "cnonce".to_owned());
        let (proof, proven) = exchange.prove(b"r=cnonceSERVER,s=c2FsdHk=,i=4096").expect("proves");
        let expected = "c=biws,r=cnonceSERVER,\
                        p=tQDtrcmbaBlKdXiEegktn6Pb5EEUQ8tYQUU/bm9aBvbI\
                        A39dwgdOKF9tq7gBHXpt+xBpOvjGjFzI69sVVy0R0w==";
        assert_eq!(std::str::from_utf8(&proof), Ok(expected));
        let answer = "v=gj8zk0XN75w0hIS+aqBDrH+6D2Ki7sYDTh4zrtncg1KP\
                      r3PhMf5esyKuyO5qSXbtWNbOFnfIJfOgJ+b+EHO5oA==";
        assert_eq!(proven.finish(answer.as_bytes()), Ok(()));
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_refused() {
        for (answer, expected) in [
            (&b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="[..], ScramError::Malformed),
            (b"v=AAAA", ScramError::BadSignature),
            (b"e=invalid-proof", ScramError::Refused),
            (b"", ScramError::Malformed),
        ] {
            let (_, proven) = exchange().prove(FIRST).expect("proves");
            assert_eq!(proven.finish(answer), Err(expected));
        }
    }

    #[test]
    fn hostile_first_messages_are_refused() {
        let table = [
            ("r=other,s=W22Z,i=4096", ScramError::ForeignNonce),
            ("r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", ScramError::ForeignNonce),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=1000000000", ScramError::Iterations(1_000_000_000)),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=1", ScramError::Iterations(1)),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096", ScramError::Malformed),
            ("i=4096", ScramError::Malformed),
        ];
        for (first, expected) in table {
            assert_eq!(exchange().prove(first.as_bytes()).err(), Some(expected), "{first}");
        }
    }

    #[test]
    fn commas_in_names_are_escaped() {
        let scram = Scram::new(Hash::Sha512, "a,b=c", "x", "n".to_owned());
        assert_eq!(scram.first_message(), b"n,,n=a=2Cb=3Dc,r=n");
    }
}
