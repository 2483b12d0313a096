/**
 * CSRF tokens: a form that changes data must contain a token, which only pages of the same session
 * contain.
 */
import type { FastifyRequest } from 'fastify';
import type { Sealer, Session } from '../deps.ts';
import { parameter } from '../login/request.ts';

const FORM_TTL_MS = 900_000;
const PURPOSE = 'form';
type Content = { session: string; about: string };

export type Forms = {
  /** Returns a token. `about` names the form and the thing that the form changes. */
  token(session: Session, about: string): string;
  /** True if `request` contains the token of this session for `about`. */
  isOwn(session: Session, about: string, request: FastifyRequest): boolean;
};

export function createForms(sealer: Sealer, publicUrl: string): Forms {
  return {
    token: (session, about) =>
      sealer.seal(PURPOSE, { session: session.id, about } satisfies Content, FORM_TTL_MS),
    isOwn(session, about, request) {
      // Additional check of the origin (Fetch section 3.1). Our pages send no referrer, so the
      // origin of their forms is `null`.
      const { origin } = request.headers;
      if (origin !== undefined && origin !== 'null' && origin !== new URL(publicUrl).origin)
        return false;
      if (
        origin === 'null' &&
        request.headers['sec-fetch-site'] !== undefined &&
        request.headers['sec-fetch-site'] !== 'same-origin'
      )
        return false;
      const content = sealer.open<Content>(PURPOSE, parameter(request.body, 'csrf') ?? '');
      return content !== null && content.session === session.id && content.about === about;
    },
  };
}
