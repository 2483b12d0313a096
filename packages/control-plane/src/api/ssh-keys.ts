/**
 * Creates deploy keys in OpenSSH formats (RFC 4253 6.6, RFC 8709, PROTOCOL.key of OpenSSH) without
 * ssh-keygen.
 */
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';

export type SshKey = {
  /** Private key in OpenSSH format; ends with a line feed. */
  privateKey: string;
  publicKey: string;
  fingerprint: string;
};

const TYPE = 'ssh-ed25519';
/** Block size of the cipher `none`. */
const BLOCK = 8;

/** Encodes a string of the ssh protocol: its length, then its bytes. */
function field(value: string | Uint8Array): Buffer {
  const bytes = Buffer.from(value);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

/** Creates a deploy key. `comment`: text that forges and ssh show. */
export function newSshKey(comment: string): SshKey {
  const { d = '', x = '' } = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  const [seed, point] = [Buffer.from(d, 'base64url'), Buffer.from(x, 'base64url')];
  const publicBlob = Buffer.concat([field(TYPE), field(point)]);
  // The format repeats this number, so that a wrong passphrase is detected by two different
  // numbers.
  const check = randomBytes(4);
  const secret = Buffer.concat([
    check,
    check,
    field(TYPE),
    field(point),
    field(Buffer.concat([seed, point])),
    field(comment),
  ]);
  const padding = Buffer.from(
    Array.from({ length: (BLOCK - (secret.length % BLOCK)) % BLOCK }, (_, i) => i + 1),
  );
  const one = Buffer.from([0, 0, 0, 1]);
  const body = Buffer.concat([
    Buffer.from('openssh-key-v1\0'),
    field('none'),
    field('none'),
    field(''),
    one,
    field(publicBlob),
    field(Buffer.concat([secret, padding])),
  ]);
  const lines = body.toString('base64').match(/.{1,70}/g) ?? [];
  return {
    privateKey: [
      '-----BEGIN OPENSSH PRIVATE KEY-----',
      ...lines,
      '-----END OPENSSH PRIVATE KEY-----',
      '',
    ].join('\n'),
    publicKey: `${TYPE} ${publicBlob.toString('base64')} ${comment}`,
    fingerprint: fingerprintOf(publicBlob),
  };
}

/** Returns the fingerprint in the format of `ssh-keygen -l`. */
export const fingerprintOf = (blob: Uint8Array): string =>
  `SHA256:${createHash('sha256').update(blob).digest('base64').replace(/=+$/, '')}`;
