/** Finds the project of a host, and the audience of the session cookies at that host. */
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
   * Audience of the cookies at this host alone, because the host can later move to another project,
   * which then receives these cookies.
   */
  audience: Audience;
  /**
   * Id of this assignment of the host to the project; a new assignment gets a new id. Absent only
   * with an older control plane.
   */
  claim?: string;
  /** Maximum time for which browsers keep the cookie; undefined for the length of the session. */
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
 * Returns the audience of cookies at a host of the platform. The next owner of the host receives
 * its cookies, so they must not be valid at another host of the project, or at this host after it
 * was reassigned (new claim), or after the project was public in between (new epoch).
 */
function audienceOfHost(
  host: string,
  claim: string | undefined,
  project: Policy['projects'][number],
): Audience {
  // At most one host of a project has this claim.
  if (claim === FIRST_CLAIM) return audienceOfProject(project);
  return `project:${host} ${claim ?? ''} ${audienceOfProject(project)}`;
}
