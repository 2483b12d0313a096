/** The typed client of wire/, for the page's own origin. The browser sends the session cookie. */
import { ApiError, type CallInput, createClient, UnreachableError } from '@berth/wire/client';
import type { AnswerOf, RouteName } from '@berth/wire/routes';
import { reportAnswer, reportProblem } from './connection.ts';

const client = createClient({ baseUrl: '' });

/** An answer and its ETag. A later change sends the ETag as `If-Match`. */
export type Answered<N extends RouteName> = { answer: AnswerOf<N>; etag: string | null };

/**
 * Returns whether the control plane did not answer. A proxy's 5xx answer has no problem document.
 */
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
 * Returns the e-mail address of the person who is signed in to the gateway at this host. Returns
 * null if nobody is, or if the gateway does not answer.
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
