/**
 * OAuth authorization server metadata (RFC 8414), with which standard clients find the endpoints of
 * the device flow.
 */
import type { FastifyInstance } from 'fastify';
import type { Config } from './config.ts';

/** RFC 8628 section 3.4 */
const DEVICE_GRANT = 'urn:ietf:params:oauth:grant-type:device_code';

export function metadataRoutes(server: FastifyInstance, { config }: { config: Config }): void {
  const { PUBLIC_URL } = config;
  const document = {
    issuer: PUBLIC_URL,
    token_endpoint: `${PUBLIC_URL}/_oauth/device/token`,
    // RFC 8628 section 4
    device_authorization_endpoint: `${PUBLIC_URL}/_oauth/device/code`,
    jwks_uri: `${PUBLIC_URL}/_oauth/jwks.json`,
    scopes_supported: ['projects', 'api'],
    grant_types_supported: [DEVICE_GRANT],
    // Section 2 requires this field. It is empty, because there is no authorization endpoint.
    response_types_supported: [],
    token_endpoint_auth_methods_supported: ['none'],
  };
  server.get('/.well-known/oauth-authorization-server', (_request, reply) =>
    reply
      .headers({
        'cache-control': 'public, max-age=300',
        'access-control-allow-origin': '*',
        'x-content-type-options': 'nosniff',
      })
      .send(document),
  );
}
