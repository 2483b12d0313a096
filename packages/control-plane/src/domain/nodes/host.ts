/**
 * Checks the addresses of nodes. An address becomes part of the proxy's URLs, so it must be a host
 * without any other part.
 */
import type { FieldProblem } from '../platform/errors.ts';

const NAME = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/i;
const V6 = /^[0-9a-f:.]*:[0-9a-f:.]*$/i;

export function hostProblem(host: string, field: string): FieldProblem | null {
  // The URL parser checks IPv6 exactly, so it checks every address that looks like IPv6.
  const valid = V6.test(host)
    ? URL.canParse(`http://[${host}]/`)
    : NAME.test(host) && URL.canParse(`http://${host}/`);
  return valid ? null : { field, rule: 'host', message: 'must be an IP address or a host name' };
}

/** Returns the address of a project: scheme and port of PUBLIC_URL with the project's own host. */
export function projectUrl(publicUrl: string, baseDomain: string, domainPrefix: string): string {
  const { protocol, port } = new URL(publicUrl);
  return `${protocol}//${domainPrefix}.${baseDomain}${port === '' ? '' : `:${port}`}`;
}
