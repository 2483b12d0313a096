/** Reports when the control plane and this command line have incompatible versions. */
import { ApiError } from '@berth/wire/client';
import { BERTH_VERSION } from '@berth/wire/version';
import type { Cli } from '../cli.ts';
import { CliError, EXIT, isAway } from '../problem.ts';

const series = (version: string): string => version.split('.').slice(0, 2).join('.');

/** Returns a sentence that names both versions; null if they are compatible. */
export function mismatch(url: string, version: string): string | null {
  if (series(version) === series(BERTH_VERSION)) return null;
  return (
    `the control plane at ${url} has version ${version}, and this command line has version ` +
    BERTH_VERSION
  );
}

/**
 * Returns whether an error can only come from another version or from a server that is not Berth:
 * the path is unknown, or the answer has another form.
 */
const isOdd = (error: unknown): boolean =>
  error instanceof TypeError ||
  (error instanceof ApiError &&
    ([405, 501].includes(error.status) || error.problem?.unknown_path === true));

/**
 * Returns whether another version might explain the error: an unknown field is a validation error,
 * but so is a wrong value. A control plane of an earlier version does not tell an unknown path from
 * an unknown resource.
 */
const isPerhapsOdd = (error: unknown): boolean =>
  error instanceof ApiError && (error.code === 'validation' || error.code === 'not_found');

/** Returns a better error if a version mismatch explains `error`, otherwise `error` itself. */
export async function mismatchAfter(error: unknown, cli: Cli): Promise<unknown> {
  if (!isOdd(error) && !isPerhapsOdd(error)) return error;
  const said = await mismatchNow(cli);
  if (said === null) return error;
  if (!isOdd(error)) {
    cli.say(`berth: note: ${said}`);
    return error;
  }
  return new CliError(
    EXIT.unreachable,
    'version_mismatch',
    `${said}, so they do not understand each other here`,
    {
      next: 'install the command line of the same version (docs/get-started.md)',
      cause: error,
    },
  );
}

/**
 * Returns the mismatch. A failed request for the version counts as no mismatch, because the
 * original error says more.
 */
async function mismatchNow(cli: Cli): Promise<string | null> {
  try {
    const { url, client } = cli.session();
    return mismatch(url, (await client.call('version', { timeoutMs: 5_000 })).version);
  } catch (error) {
    if (isAway(error) || error instanceof ApiError || error instanceof CliError) return null;
    throw error;
  }
}
