/** Says when the control plane has another version than this command line. */
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
 * An unknown path, or an answer of another form: only another version, or no Berth at all, answers
 * so.
 */
const isOdd = (error: unknown): boolean =>
  error instanceof TypeError ||
  (error instanceof ApiError &&
    ([405, 501].includes(error.status) ||
      (error.status === 404 && /^the path .* does not exist$/.test(error.problem?.detail ?? ''))));

/**
 * A field that one of two versions does not know is a validation error, but so is a wrong value.
 */
const isPerhapsOdd = (error: unknown): boolean =>
  error instanceof ApiError && error.code === 'validation';

/**
 * Explains an error that another version of the control plane explains. Returns `error` itself in
 * all other cases.
 */
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
 * The first error says more than a failed request for the version, so that counts as no mismatch.
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
