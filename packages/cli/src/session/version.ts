/** Says when the control plane has another version than this command line. */
import { ApiError } from '@berth/wire/client';
import { BERTH_VERSION } from '@berth/wire/version';
import type { Cli } from '../cli.ts';
import { CliError, isAway } from '../problem.ts';

const series = (version: string): string => version.split('.').slice(0, 2).join('.');

/** Returns a sentence; null if the versions fit. */
export function mismatch(url: string, version: string): string | null {
  if (series(version) === series(BERTH_VERSION)) return null;
  return `the control plane at ${url} has version ${version}, and this command line has version ${BERTH_VERSION}`;
}

/** An answer that two versions may understand differently: an unknown path, field or answer. */
const isOdd = (error: unknown): boolean =>
  error instanceof TypeError ||
  (error instanceof ApiError &&
    ([405, 501].includes(error.status) ||
      error.code === 'validation' ||
      (error.status === 404 && /^the path .* does not exist$/.test(error.problem?.detail ?? ''))));

/** Adds the versions to an error that a mismatch may explain. Returns `error` itself in all other cases. */
export async function mismatchAfter(error: unknown, cli: Cli): Promise<unknown> {
  if (!isOdd(error)) return error;
  try {
    const { url, client } = cli.session();
    const said = mismatch(url, (await client.call('version', { timeoutMs: 5_000 })).version);
    if (said !== null) cli.say(`berth: ${said}`);
  } catch (other) {
    // The first error says more than a failed request for the version.
    if (!isAway(other) && !(other instanceof ApiError) && !(other instanceof CliError)) throw other;
  }
  return error;
}
