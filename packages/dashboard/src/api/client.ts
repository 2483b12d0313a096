/** The typed client of wire/, for the origin of the page. The browser sends the session cookie. */
import { ApiError, type CallInput, createClient, UnreachableError } from '@berth/wire/client';
import type { AnswerOf, RouteName } from '@berth/wire/routes';
import { reportAnswer, reportProblem } from './connection.ts';

const client = createClient({ baseUrl: '' });

/** An answer with its ETag, which a later change sends as `If-Match`. */
export type Answered<N extends RouteName> = { answer: AnswerOf<N>; etag: string | null };

/** A 5xx of a proxy has no problem document: the control plane itself did not answer. */
export const isAway = (error: unknown): boolean =>
  error instanceof UnreachableError ||
  (error instanceof ApiError && [502, 503, 504].includes(error.status) && error.problem === null);

export async function exchange<N extends RouteName>(
  name: N,
  input: CallInput<N>,
): Promise<Answered<N>> {
  try {
    const { answer, etag } = await client.exchange(name, input);
    reportAnswer();
    return { answer: answer as AnswerOf<N>, etag };
  } catch (error) {
    if (isAway(error)) reportProblem('away');
    else if (error instanceof ApiError) {
      reportAnswer();
      if (error.status === 401 && name !== 'login' && name !== 'exchange')
        reportProblem('signed_out');
    }
    throw error;
  }
}

export async function call<N extends RouteName>(
  name: N,
  input: CallInput<N>,
): Promise<AnswerOf<N>> {
  return (await exchange(name, input)).answer;
}

/**
 * Returns the address of the person whom the gateway knows at this host; null: nobody, or the
 * gateway does not answer.
 */
export async function gatewayPerson(): Promise<string | null> {
  const answer = await fetch('/_oauth/userinfo', { headers: { accept: 'application/json' } }).catch(
    () => null,
  );
  const person: unknown = answer?.ok === true ? await answer.json().catch(() => null) : null;
  return typeof person === 'object' &&
    person !== null &&
    'email' in person &&
    typeof person.email === 'string'
    ? person.email
    : null;
}
