/** The Idempotency-Key header: the same key with the same request gives the same deployment for 24 hours (flow/drive.ts keeps it). */
import { createHash } from 'node:crypto';
import { invalid } from '../domain/errors.ts';

const HEADER = 'Idempotency-Key';

/** `meaning` is what the request asks for, with what was left out filled in, so that only another meaning is another body. */
export function idempotencyOf(
  header: string | string[] | undefined,
  meaning: readonly unknown[],
): { key: string; bodyHash: string } | null {
  if (header === undefined) return null;
  const key = String(header);
  if (!/^[\x20-\x7e]{1,200}$/.test(key)) throw invalid(HEADER, 'printable', 'must be 1 to 200 printable ASCII characters');
  return { key, bodyHash: createHash('sha256').update(JSON.stringify(meaning)).digest('hex') };
}
