/** Which project a host belongs to, and for whom session cookies of that host are valid. */
import type { Policy } from '@berth/wire/gateway';
import { type Audience, audienceOfProject, type PolicyView } from './deps.ts';

export type Platform = {
  baseDomain: string;
  /** Host of PUBLIC_URL. */
  authHost: string;
};
export type Site = {
  project: Policy['projects'][number];
  /** At hosts under BASE_DOMAIN the project's own audience; at a custom domain one of this domain alone. */
  audience: Audience;
  /** Only of a custom domain. */
  claim?: string;
  /** Longest time for which browsers keep the cookie; undefined: as long as the session. */
  cookieSeconds?: number;
};

/** True for the auth host, BASE_DOMAIN and hosts under it: these are never custom domains. */
export const isPlatformHost = (host: string, { baseDomain, authHost }: Platform): boolean =>
  host === authHost || host === baseDomain || host.endsWith(`.${baseDomain}`);

/** `host` is in lower case and without a port. */
export function siteAt(host: string, view: PolicyView, platform: Platform): Site | undefined {
  if (isPlatformHost(host, platform)) {
    const project = view.projectByHost(host);
    return project === undefined ? undefined : { project, audience: audienceOfProject(project) };
  }
  const domain = view.domainByHost(host);
  // A domain may belong to somebody else tomorrow, who then reads its cookies. They must open nothing: neither the project under
  // BASE_DOMAIN, nor the domain after it came back (`claim` differs then), nor a project that was public meanwhile (its epoch).
  if (domain === undefined) return undefined;
  const { project, claim, cookie_seconds } = domain;
  const audience: Audience = `domain:${host} ${claim} ${audienceOfProject(project)}`;
  return { project, audience, claim, ...(cookie_seconds === undefined ? {} : { cookieSeconds: cookie_seconds }) };
}
