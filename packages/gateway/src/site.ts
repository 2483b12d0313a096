/** Which project a host belongs to, and for whom session cookies of that host are valid. */
import { defined } from '@berth/kit/defined';
import { FIRST_CLAIM, type Policy } from '@berth/wire/gateway';
import { type Audience, audienceOfProject, type PolicyView } from './deps.ts';

export type Platform = {
  baseDomain: string;
  /** Host of PUBLIC_URL. */
  authHost: string;
};
export type Site = {
  project: Policy['projects'][number];
  /**
   * This host alone: a host can belong to another project tomorrow, which then reads its cookies.
   */
  audience: Audience;
  /**
   * Differs for each time that a project gets the host. Absent only with an older control plane.
   */
  claim?: string;
  /** Longest time for which browsers keep the cookie; undefined: as long as the session. */
  cookieSeconds?: number;
};

/** True for the auth host, BASE_DOMAIN and hosts under it: these are never custom domains. */
export const isPlatformHost = (host: string, { baseDomain, authHost }: Platform): boolean =>
  host === authHost || host === baseDomain || host.endsWith(`.${baseDomain}`);

/** `host` is in lower case and without a port. */
export function siteAt(host: string, view: PolicyView, platform: Platform): Site | undefined {
  const isPlatform = isPlatformHost(host, platform);
  const hostEntry = isPlatform ? view.projectByHost(host) : view.domainByHost(host);
  if (hostEntry === undefined) return undefined;
  const { project, claim, cookie_seconds } = hostEntry;
  return {
    project,
    audience: isPlatform
      ? audienceOfHost(host, claim, project)
      : `domain:${host} ${claim} ${audienceOfProject(project)}`,
    ...defined({ claim, cookieSeconds: cookie_seconds }),
  };
}

/**
 * The next owner of a host reads its cookies. They must open nothing: neither another host of the
 * project, nor this host after it came back (`claim` differs then), nor a project that was public
 * meanwhile (its epoch).
 */
function audienceOfHost(
  host: string,
  claim: string | undefined,
  project: Policy['projects'][number],
): Audience {
  // One host of a project at most has this claim.
  if (claim === FIRST_CLAIM) return audienceOfProject(project);
  return `project:${host} ${claim ?? ''} ${audienceOfProject(project)}`;
}
