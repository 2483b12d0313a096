/**
 * Shows where the custom domains of a project lead, and their certificates. Frees hosts that are
 * kept for their last project.
 */
import { hostMeant } from '../../domain/routes/domains.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { certificateView, time } from '../views.ts';

export function domainRoutes(
  route: Define,
  { stores, settings, source, certificates, checkDns, changes, now }: ApiDeps,
): void {
  const { protocol, port } = new URL(settings.publicUrl);
  const urlOf = (host: string): string => `${protocol}//${host}${port === '' ? '' : `:${port}`}`;

  route('freeHost', async ({ params, request }) => {
    const host = hostMeant(params.host, settings.baseDomain);
    request.audited = { target: host.domain };
    await stores.domains.free(host, now());
    changes.notify('policy', 'events');
  });

  route('projectDomains', async ({ params }) => {
    const project = await stores.projects.get(params.id);
    const { domains, deployments } = source.current();
    const ownHost = `${project.domain_prefix}.${settings.baseDomain}`;
    const isPublished = (domain: string): boolean =>
      domain === ownHost
        ? [...deployments.values()].some(
            ({ project_id, host }) => project_id === project.id && host === domain,
          )
        : domains.get(domain) === project.id;
    const seen = await checkDns(project.domains);
    return {
      items: project.domains.flatMap((domain) => {
        const dns = seen.get(domain);
        if (dns === undefined) return [];
        const published = isPublished(domain);
        return [
          {
            domain,
            url: urlOf(domain),
            published,
            dns: { ...dns, checked_at: time(dns.checked_at) },
            certificate: published ? certificateView(certificates?.ofHost(domain) ?? null) : null,
          },
        ];
      }),
    };
  });
}
