/**
 * The last bytes of a backup: the SHA-256 of all bytes before them. It detects a changed byte and a
 * missing end. The footer is an empty gzip member with a comment (RFC 1952), so `gzip` and `tar xz`
 * can read the file.
 */
import { createHash } from 'node:crypto';
import { Transform } from 'node:stream';
import { BackupError } from './errors.ts';

const LABEL = 'berth-backup sha256=';
/** gzip header: magic, deflate, the flag for a comment, no time, no extra flags, Unix. */
const HEAD = Buffer.from([0x1f, 0x8b, 8, 0x10, 0, 0, 0, 0, 0, 3]);
/** End of the comment, an empty deflate stream, CRC-32 and length. */
const TAIL = Buffer.from([0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
const FOOTER_BYTES = HEAD.length + LABEL.length + 64 + TAIL.length;

const footerOf = (sha256: string): Buffer =>
  Buffer.concat([HEAD, Buffer.from(`${LABEL}${sha256}`), TAIL]);

export function appendFooter(): Transform {
  const hash = createHash('sha256');
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      done(null, chunk);
    },
    flush(done) {
      done(null, footerOf(hash.digest('hex')));
    },
  });
}

/** Removes the footer. Fails with `damaged` at the end if it does not match. */
export function checkFooter(): Transform {
  const hash = createHash('sha256');
  let held = Buffer.alloc(0);
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const all = Buffer.concat([held, chunk]);
      const body = all.subarray(0, Math.max(0, all.length - FOOTER_BYTES));
      held = all.subarray(body.length);
      hash.update(body);
      done(null, body);
    },
    flush(done) {
      if (
        held.length < FOOTER_BYTES ||
        !held
          .subarray(0, HEAD.length + LABEL.length)
          .equals(footerOf('').subarray(0, HEAD.length + LABEL.length))
      )
        return done(
          new BackupError(
            'damaged',
            'its end is missing: the file is truncated, or its last bytes changed',
          ),
        );
      if (!held.equals(footerOf(hash.digest('hex'))))
        return done(
          new BackupError('damaged', 'its SHA-256 does not match: at least one byte changed'),
        );
      done();
    },
  });
}
