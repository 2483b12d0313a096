/**
 * Builds the token request from the challenge of a registry (OCI distribution, RFC 6750). Throws if
 * the login would be sent without https.
 */
export function tokenUrl(
  challenge: string,
  name: string,
  origin: string,
  actions = 'pull,push',
): string {
  const field = (key: string): string | undefined =>
    new RegExp(`${key}="([^"]*)"`).exec(challenge)?.[1];
  const url = new URL(field('realm') ?? '');
  if (url.protocol !== 'https:' && !origin.startsWith('http:'))
    throw new Error(`the token server ${url.host} uses plain http`);
  const service = field('service');
  if (service !== undefined) url.searchParams.set('service', service);
  url.searchParams.set('scope', `repository:${name}:${actions}`);
  return url.href;
}
