/** Leaves the body of a request to its handler (`rawBody` in wire/route.ts). */
import type { FastifyInstance } from 'fastify';

/**
 * Disables parsing in this scope: the handlers read the bytes of the body. An answer closes the
 * connection unless the handler removes the header, so that a stranger cannot make this process
 * receive the rest of a body.
 */
export function installRawBodies(scope: FastifyInstance): void {
  scope.addHook('onRequest', (_request, reply, done) => {
    void reply.header('connection', 'close');
    done();
  });
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
}
