/** Forms that decide something carry a token that only a page of this session can hold; another site's form has none. */
import type { FastifyRequest } from 'fastify';
import type { Sealer, Session } from '../deps.ts';
import { parameter } from '../login/request.ts';

const FORM_TTL_MS = 900_000;
const PURPOSE = 'form';
type Content = { session: string; about: string };

export type Forms = {
  /** `about`: which form, and what it decides. */
  token(session: Session, about: string): string;
  /** Whether `request` is the answer to such a page of this session about this thing. */
  isOwn(session: Session, about: string, request: FastifyRequest): boolean;
};

export function createForms(sealer: Sealer, publicUrl: string): Forms {
  return {
    token: (session, about) => sealer.seal(PURPOSE, { session: session.id, about } satisfies Content, FORM_TTL_MS),
    isOwn(session, about, request) {
      // Fetch, section 3.1: browsers name the origin of a form that is posted. Beside the token, for what it costs. Our pages send
      // no referrer, and then the origin of their own forms is `null`.
      const { origin } = request.headers;
      if (origin !== undefined && origin !== 'null' && origin !== new URL(publicUrl).origin) return false;
      if (origin === 'null' && request.headers['sec-fetch-site'] !== undefined && request.headers['sec-fetch-site'] !== 'same-origin')
        return false;
      const content = sealer.open<Content>(PURPOSE, parameter(request.body, 'csrf') ?? '');
      return content !== null && content.session === session.id && content.about === about;
    },
  };
}
