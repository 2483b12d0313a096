/**
 * Parses request bodies. Accepts only JSON in UTF-8 without a content coding (RFC 8259 section 8.1,
 * RFC 9110 section 8.4).
 */
import { isUtf8 } from 'node:buffer';
import type { Route } from '@berth/wire/route';
import { ROUTES } from '@berth/wire/routes';
import type { FastifyRequest } from 'fastify';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import type { Server } from '../define.ts';

const BYTE_ORDER_MARK = '\ufeff';

export function installBodies(server: Server): void {
  server.removeAllContentTypeParsers();
  const parseJson = server.getDefaultJsonParser('error', 'error');
  server.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    if (body.length === 0) return done(null, undefined);
    // Refuse invalid UTF-8: decoding would replace invalid bytes by U+FFFD and silently change a
    // password.
    if (!isUtf8(body as Buffer))
      return done(new DomainError('invalid_json', 'the body is not UTF-8'));
    const text = body.toString();
    if (text.startsWith(BYTE_ORDER_MARK))
      return done(new DomainError('invalid_json', 'the body begins with a byte order mark'));
    void parseJson(request, text, (error, value: unknown) =>
      done(error === null || !isJson(text) ? error : forbiddenName(), value),
    );
  });
  server.addHook('onRequest', (request, reply, done) => {
    const coding = request.headers['content-encoding'] ?? 'identity';
    // Accept every coding on a route that reads the bytes itself: a signature covers the encoded
    // bytes.
    if (coding.toLowerCase() === 'identity' || readsBytes(request)) return done();
    void reply.header('accept-encoding', 'identity');
    done(
      new DomainError(
        'unsupported_media_type',
        `the body has the content coding ${coding}; send it without one`,
      ),
    );
  });
}

const readsBytes = (request: FastifyRequest): boolean => {
  const name = request.routeOptions.config.routeName;
  return name !== undefined && (ROUTES[name] as Route).rawBody === true;
};

/**
 * Returns whether the text is JSON. The body parser also refuses valid JSON with a field name that
 * could poison prototypes.
 */
function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const forbiddenName = (): DomainError =>
  invalid(
    'body',
    'forbidden_name',
    'must not contain a field named “__proto__”, or “prototype” inside “constructor”',
  );
