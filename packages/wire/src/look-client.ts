/** The client side of a repository look. The command line and the dashboard use it. */
import type { CallInput, CallResult } from './client.ts';
import type { RepositoryLook } from './repository-look.ts';
import type { AnswerOf, BodyOf } from './routes.ts';

const HOLD_SECONDS = 25;
/** Pause in ms after a long poll without a change: a busy control plane might answer at once. */
const PAUSE_MS = 500;
/**
 * Maximum number of long polls. The control plane ends each look after 60 s; with immediate
 * answers, 240 pauses take 120 s.
 */
const MOST_HOLDS = 240;

/** The API calls that a look needs. */
export type LookCalls = {
  create(input: CallInput<'createRepositoryLook'>): Promise<AnswerOf<'createRepositoryLook'>>;
  /** A long poll. `answer` is null if nothing changed. */
  get(
    input: CallInput<'getRepositoryLook'>,
  ): Promise<Pick<CallResult<'getRepositoryLook'>, 'answer' | 'etag'>>;
  sleep(ms: number): Promise<unknown>;
};

/**
 * Requests a look, then polls (long poll) until a builder has answered.
 * @returns the look; its state is `waiting` if the control plane did not end it
 * @throws the errors of the calls, including an abort by `signal`
 */
export async function lookAt(
  calls: LookCalls,
  body: BodyOf<'createRepositoryLook'>,
  signal?: AbortSignal,
): Promise<RepositoryLook> {
  const until = signal === undefined ? {} : { signal };
  let look: RepositoryLook = await calls.create({ body, ...until });
  let etag: string | null = null;
  for (let holds = 0; look.state === 'waiting' && look.id !== null && holds < MOST_HOLDS; holds++) {
    const next: Awaited<ReturnType<LookCalls['get']>> = await calls.get({
      params: { id: look.id },
      query: { wait: HOLD_SECONDS },
      timeoutMs: (HOLD_SECONDS + 15) * 1000,
      // Without an ETag the control plane answers at once.
      headers: etag === null ? {} : { 'if-none-match': etag },
      ...until,
    });
    etag = next.etag;
    look = next.answer ?? look;
    if (next.answer === null) await calls.sleep(PAUSE_MS);
  }
  return look;
}
