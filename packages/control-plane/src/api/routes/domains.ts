/**
 * Shows where a project's custom domains lead, and their certificates. Frees hosts that are
 * reserved for their last project.
 */
import { hostMeant } from '../../domain/routes/domains.ts';
import type { Define, Call } from '../define.ts';
import { certificateView, time } from '../views.ts';
import type { DomainStore } from '../../domain/routes/route-stores.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { ConfigSource, CertificateWatch } from '../../domain/routes/configuration.ts';
import type { CheckDns } from '../../domain/routes/dns.ts';
import type { ApiSettings } from '../settings.ts';
import type { Changes } from '../../domain/platform/changes.ts';

export type Deps = {
  domains: Pick<DomainStore, 'free'>;
  projects: Pick<ProjectStore, 'get'>;
  source: Pick<ConfigSource, 'current'>;
  checkDns: CheckDns;
  certificates?: Pick<CertificateWatch, 'ofHost'>;
  settings: Pick<ApiSettings, 'baseDomain' | 'publicUrl'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
};

export function domainRoutes(route: Define, deps: Deps): void {
  route('freeHost', (call) => freeHost(deps, call));
  route('projectDomains', (call) => projectDomains(deps, call));
}

/** Returns the address of a host at the port of PUBLIC_URL. */
function urlOf(host: string, publicUrl: string): string {
  const { protocol, port } = new URL(publicUrl);
  return `${protocol}//${host}${port === '' ? '' : `:${port}`}`;
}

async function freeHost(deps: Deps, { params, request }: Call<'freeHost'>) {
  const host = hostMeant(params.host, deps.settings.baseDomain);
  request.audited = { target: host.domain };
  await deps.domains.free(host, deps.now());
  deps.changes.notify('policy', 'events');
}

async function projectDomains(deps: Deps, { params }: Call<'projectDomains'>) {
  const project = await deps.projects.get(params.id);
  const { domains, deployments } = deps.source.current();
  const ownHost = `${project.domain_prefix}.${deps.settings.baseDomain}`;
  const isPublished = (domain: string): boolean =>
    domain === ownHost
      ? [...deployments.values()].some(
          ({ project_id, host }) => project_id === project.id && host === domain,
        )
      : domains.get(domain) === project.id;
  const seen = await deps.checkDns(project.domains);
  return {
    items: project.domains.flatMap((domain) => {
      const dns = seen.get(domain);
      if (dns === undefined) return [];
      const published = isPublished(domain);
      return [
        {
          domain,
          url: urlOf(domain, deps.settings.publicUrl),
          published,
          dns: { ...dns, checked_at: time(dns.checked_at) },
          certificate: published
            ? certificateView(deps.certificates?.ofHost(domain) ?? null)
            : null,
        },
      ];
    }),
  };
}
