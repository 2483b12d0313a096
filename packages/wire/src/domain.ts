/** Custom domains of projects (docs/domains.md). */
import { type Static, Type } from 'typebox';
import { Certificate } from './certificate.ts';
import type { Route } from './route.ts';
import { literals, orNull, Time } from './vocabulary.ts';

/** Maximum number of custom domains of one project. */
export const MAX_DOMAINS = 20;
/**
 * A host name in any spelling; Berth stores it in lower case and as punycode.
 * control-plane/src/domain/routes/domains.ts has the full rules.
 */
export const Domain = Type.String({ minLength: 1, maxLength: 300 });

/**
 * `ok`: all addresses of the name lead to this Berth. `partly`: some lead elsewhere. `elsewhere`:
 * all lead elsewhere. `missing`: the name has no address. `unknown`: the name servers did not
 * answer, or Berth does not know its own address.
 */
export const DNS_STATES = ['ok', 'partly', 'elsewhere', 'missing', 'unknown'] as const;
export type DnsState = (typeof DNS_STATES)[number];

export const DnsCheck = Type.Object({
  state: literals(DNS_STATES),
  addresses: Type.Array(Type.String(), { description: 'where the name leads' }),
  cname: orNull(Type.String({ description: 'the name to which it points, if it is an alias' })),
  expected: Type.Array(Type.String(), {
    description: 'PUBLIC_IPS, or the addresses of BASE_DOMAIN',
  }),
  problem: orNull(Type.String({ description: 'what is wrong, and what to do' })),
  checked_at: Time,
});
export type DnsCheck = Static<typeof DnsCheck>;

export const ProjectDomain = Type.Object({
  domain: Type.String(),
  url: Type.String(),
  published: Type.Boolean({
    description:
      'whether the configuration of the proxy has it; a project that never ran is not published',
  }),
  dns: DnsCheck,
  certificate: Type.Union([Certificate, Type.Null()], {
    description:
      'the certificate that the proxy serves for it; null: not checked yet, or not published ' +
      'over https',
  }),
});
export type ProjectDomain = Static<typeof ProjectDomain>;
export const ProjectDomains = Type.Object({ items: Type.Array(ProjectDomain) });

export const KEPT_HOST_ROUTES = {
  freeHost: {
    method: 'DELETE',
    path: '/api/kept-hosts/:host',
    who: 'admin',
    scope: 'none',
    summary:
      'Free a domain prefix or custom domain that is kept for its last project (DOMAIN_QUARANTINE)',
    params: Type.Object({
      host: Type.String({
        minLength: 1,
        maxLength: 300,
        description: 'custom domain, host of a domain prefix, or the prefix alone',
      }),
    }),
    status: 204,
  },
} as const satisfies Record<string, Route>;
