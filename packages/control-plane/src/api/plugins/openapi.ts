/** The page at /docs that shows the API document; everything of it comes from this origin. */
import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { Server } from '../define.ts';

export async function installDocsPage(server: Server, document: object): Promise<void> {
  await server.register(swagger, { mode: 'static', specification: { document: document as never } });
  await server.register(swaggerUi, {
    routePrefix: '/docs',
    staticCSP: true,
    // Over plain http a browser would fetch scripts by https, where nothing answers: the page stayed blank.
    transformStaticCSP: (policy) => policy.replace(/;?\s*upgrade-insecure-requests/, ''),
    uiConfig: { docExpansion: 'list', deepLinking: true },
  });
}
