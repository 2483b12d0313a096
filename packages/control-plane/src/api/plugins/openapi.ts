/**
 * Serves the page at /docs, which shows the OpenAPI document. It loads everything from its own
 * origin.
 */
import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { Server } from '../define.ts';
import { pathOf } from '../problem.ts';
import { createStaticAnswer, type StaticAnswer } from '../static-answer.ts';

export async function installDocsPage(
  server: Server,
  document: object,
  json: StaticAnswer,
): Promise<void> {
  const yaml = createStaticAnswer('application/x-yaml', () => server.swagger({ yaml: true }));
  const kept = new Map([
    ['/docs/json', json],
    ['/docs/yaml', yaml],
  ]);
  // Answer from memory: the page would serialize the document for each request.
  server.addHook('onRequest', (request, reply, done) => {
    const answer = request.method === 'GET' ? kept.get(pathOf(request.url)) : undefined;
    if (answer === undefined) return done();
    answer.send(request, reply);
  });
  await server.register(swagger, {
    mode: 'static',
    specification: { document: document as never },
  });
  await server.register(swaggerUi, {
    routePrefix: '/docs',
    staticCSP: true,
    // Remove this directive: with it, a browser would load the scripts of a plain http page over
    // https, where nothing answers, and the page would stay blank. Allow inline styles: the page
    // sets styles of elements, which no hash covers.
    transformStaticCSP: (policy) =>
      policy
        .replace(/;?\s*upgrade-insecure-requests/, '')
        .replace(/style-src [^;]*/, "style-src 'self' 'unsafe-inline'"),
    uiConfig: { docExpansion: 'list', deepLinking: true },
  });
}
