/**
 * `berth __complete WORDS` prints one candidate per line, with a tab and its description. Shells
 * call it at each Tab, so it prints no errors.
 */
import { createClient } from '@berth/wire/client';
import { type Cli, createCli } from '../cli.ts';
import { COMMANDS, NOUNS } from '../commands/table.ts';
import { asFetch } from '../http.ts';
import type { Io } from '../io.ts';
import { oneLine } from '../output/text.ts';
import { anonymous, type Session } from '../session/session.ts';
import { isLocal, readNames, sourceOf } from './names.ts';
import { type Candidate, matching, possible, type Wanted } from './words.ts';

/** Maximum time in ms for a completion, because a person waits after pressing Tab. */
const DEADLINE_MS = 1_500;
/** Names without characters that a shell interprets: the shell inserts a name unquoted. */
const SAFE_NAME = /^[\w.@:+][\w.@:+-]*$/;

export async function complete(words: readonly string[], io: Io): Promise<void> {
  const { candidates, names } = possible(COMMANDS, NOUNS, words);
  const namedCandidates = names === null ? [] : await namesFor(names, words, io).catch(() => []);
  const current = words.at(-1) ?? '';
  const all = [
    ...candidates,
    ...matching(
      current,
      namedCandidates.filter(({ word }) => SAFE_NAME.test(word)),
    ),
  ];
  if (all.length > 0) io.out(all.map(({ word, doc }) => `${word}\t${oneLine(doc)}\n`).join(''));
}

async function namesFor(wanted: Wanted, words: readonly string[], io: Io): Promise<Candidate[]> {
  const source = sourceOf(wanted);
  if (source === undefined) return [];
  const at = words.indexOf('--context');
  const context = at < 0 || at > words.length - 3 ? {} : { context: words[at + 1] ?? '' };
  const cli = createCli(io, context);
  return readNames(source, wanted, cli, isLocal(source) ? null : await boundedSession(cli));
}

/**
 * Returns a session whose requests end at the deadline. A token renewal is not aborted, because its
 * answer must be stored.
 */
async function boundedSession(cli: Cli): Promise<Session> {
  const session = cli.session();
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  // Check that the server answers before a renewal begins.
  if (session.mustRenew()) await anonymous(session.url).call('version', { signal: deadline });
  const client = createClient({
    baseUrl: session.url,
    fetch: asFetch((address, request) =>
      session.send(address, {
        ...request,
        signal:
          request.signal === undefined ? deadline : AbortSignal.any([request.signal, deadline]),
      }),
    ),
  });
  return { ...session, client };
}
