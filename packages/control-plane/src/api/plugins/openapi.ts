/** The API as OpenAPI 3.1, made from the route table, and a page to read it with; all of it served from here. */
import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { Server } from '../define.ts';

const DESCRIPTION = `Self-hosted deployment platform. Sign in at \`POST /api/auth/login\` and send the token as \`Authorization: Bearer\`,
or a personal API token in its place. Errors are problem documents (RFC 9457) with a \`code\`; on 422 \`errors[]\` names each field and rule.
Lists take \`limit\` and \`cursor\`. Times are RFC 3339, UTC.`;

/** Before the routes: it collects them as they come. */
export async function installOpenapi(server: Server): Promise<void> {
  await server.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Berth', version: '1', description: DESCRIPTION },
      components: {
        securitySchemes: {
          bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' },
          agent: { type: 'apiKey', in: 'header', name: 'X-Agent-Secret' },
          gateway: { type: 'apiKey', in: 'header', name: 'X-Gateway-Secret' },
        },
      },
    },
  });
  await server.register(swaggerUi, { routePrefix: '/docs', staticCSP: true, uiConfig: { docExpansion: 'list', deepLinking: true } });
}
