/** The client side of a look into a repository. The command line and the dashboard use it. */
import type { CallInput, CallResult } from './client.ts';
import type { RepositoryLook } from './repository-look.ts';
import type { AnswerOf, BodyOf } from './routes.ts';

const HOLD_SECONDS = 25;
/** Pause after a held answer without news: the control plane can be too busy to hold it. */
const PAUSE_MS = 500;
/**
 * The control plane ends each look after a minute. With the shortest answers, this is twice as
 * long.
 */
const MOST_HOLDS = 240;

/** The two calls of a client that a look needs. */
export type LookCalls = {
  create(input: CallInput<'createRepositoryLook'>): Promise<AnswerOf<'createRepositoryLook'>>;
  /** A held request. `answer` is null when nothing is new. */
  get(
    input: CallInput<'getRepositoryLook'>,
  ): Promise<Pick<CallResult<'getRepositoryLook'>, 'answer' | 'etag'>>;
  sleep(ms: number): Promise<unknown>;
};

/**
 * Sends one request, and then held ones until a builder has answered.
 * @returns the look; its state is `waiting` if the control plane did not end it
 * @throws the errors of the calls, also when `signal` aborts
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
      // Without a tag the answer comes at once.
      headers: etag === null ? {} : { 'if-none-match': etag },
      ...until,
    });
    etag = next.etag;
    look = next.answer ?? look;
    if (next.answer === null) await calls.sleep(PAUSE_MS);
  }
  return look;
}
