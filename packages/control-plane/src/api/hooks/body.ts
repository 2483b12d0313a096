/**
 * Reads the body of a delivery. Every byte goes to the signature check; only a small body is also
 * kept, and all kept bodies together have a limit. A delivery whose body was not kept is still a
 * hint: Berth then checks the branch.
 */
import type { Readable } from 'node:stream';
import { MAX_DELIVERY_BYTES } from '@berth/wire/hook';
import { DomainError } from '../../domain/platform/errors.ts';
import type { SignatureCheck } from './signatures.ts';

/** Limits in bytes of kept bodies: one body, and all bodies that arrive at the same time. */
export const KEPT_BYTES = 1_048_576;
const ALL_KEPT_BYTES = 32 * 1_048_576;

export type DeliveryBodies = {
  /**
   * Returns the body, or null if it was not kept. Throws body_too_large (more than `most` bytes),
   * and bad_request if the client disconnects.
   */
  read(stream: Readable, check: SignatureCheck, most?: number): Promise<Buffer | null>;
};

export function createDeliveryBodies(limit = ALL_KEPT_BYTES): DeliveryBodies {
  let allKept = 0;
  return {
    async read(stream, check, most = MAX_DELIVERY_BYTES) {
      let kept: Buffer[] | null = [];
      let keptBytes = 0;
      let bytes = 0;
      const drop = (): void => {
        allKept -= keptBytes;
        keptBytes = 0;
        kept = null;
      };
      try {
        for await (const chunk of stream as AsyncIterable<Buffer>) {
          bytes += chunk.length;
          if (bytes > most) throw tooLarge();
          check.update(chunk);
          if (kept === null) continue;
          if (keptBytes + chunk.length > KEPT_BYTES || allKept + chunk.length > limit) {
            drop();
            continue;
          }
          kept.push(chunk);
          keptBytes += chunk.length;
          allKept += chunk.length;
        }
        return kept === null ? null : Buffer.concat(kept);
      } catch (error) {
        // Do not log this as an error: strangers can break off requests as often as they like.
        throw error instanceof DomainError
          ? error
          : new DomainError('bad_request', 'the body did not arrive completely');
      } finally {
        drop();
      }
    },
  };
}

export const isTooLong = (contentLength: string | undefined): boolean =>
  Number(contentLength ?? 0) > MAX_DELIVERY_BYTES;

export const tooLarge = (): DomainError =>
  new DomainError(
    'body_too_large',
    `the body is larger than ${MAX_DELIVERY_BYTES / 1_048_576} MiB`,
  );
