/** Commands for custom domains. */
import { domainToASCII } from 'node:url';
import type { ProjectDomain } from '@berth/wire/domain';
import { ROUTES } from '@berth/wire/routes';
import { confirmed } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { changeProject } from '../project/change.ts';
import { refused } from '../problem.ts';
import { table } from '../output/text.ts';
import { argument, type Command } from './command.ts';
import { PROJECT_ARGUMENT, YES } from './project.ts';

const DOMAIN = {
  name: 'domain',
  doc: 'host name, such as www.example.com',
  required: true,
} as const;
const domainsOf = async (cli: Cli, id: string): Promise<ProjectDomain[]> =>
  (await cli.client().call('projectDomains', { params: { id } })).items;
const certificateText = ({ certificate, published }: ProjectDomain): string =>
  certificate?.state ?? (published ? 'not checked' : 'not published yet');
const problemsOf = ({ dns, certificate }: ProjectDomain): string[] =>
  [dns.problem, certificate?.problem ?? null].filter((problem) => problem !== null);

const domainTable = (items: readonly ProjectDomain[]): string =>
  table(items, [
    { head: 'DOMAIN', of: (d) => d.domain },
    { head: 'DNS', of: (d) => d.dns.state },
    { head: 'CERTIFICATE', of: certificateText },
    { head: 'ADDRESSES', of: (d) => d.dns.addresses.join(', ') || '–' },
  ]);

function list(cli: Cli, items: ProjectDomain[], name: string): void {
  cli.print({ items }, () =>
    items.length === 0
      ? `no custom domains; add one: berth domain add www.example.com --project ${name}`
      : domainTable(items),
  );
  for (const item of items)
    for (const problem of problemsOf(item)) cli.say(`${item.domain}: ${problem}`);
}

/** Returns the domain in the form that Berth stores, as far as the client can compute it. */
const normal = (domain: string): string =>
  (domainToASCII(domain.trim()) || domain).replace(/\.$/, '');

export const DOMAIN_COMMANDS: readonly Command[] = [
  {
    name: 'domain list',
    summary: 'List the custom domains of a project, where they lead, and their certificates',
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['projectDomains'],
    async run(cli, [named]) {
      const { id, name } = await cli.project(named);
      list(cli, await domainsOf(cli, id), name);
    },
  },
  {
    name: 'domain add',
    summary: 'Add a custom domain to a project; it takes effect at once',
    detail: 'Then point the domain to this platform at its DNS provider (docs/domains.md).',
    args: [DOMAIN],
    aboutProject: true,
    routes: ['getProject', 'patchProject', 'projectDomains'],
    async run(cli, args) {
      const domain = argument(args, 0);
      const project = await changeProject(cli, async ({ domains }) => ({
        domains: [...domains, domain],
      }));
      const items = (await domainsOf(cli, project.id)).filter((d) => d.domain === normal(domain));
      cli.print({ domains: project.domains }, () =>
        items.length === 0 ? project.domains.join('\n') : domainTable(items),
      );
      for (const item of items) for (const problem of problemsOf(item)) cli.say(problem);
    },
  },
  {
    name: 'domain remove',
    summary: 'Remove a custom domain from a project; it signs out the visitors of this domain',
    detail:
      'For a while, no other project can have the domain (DOMAIN_QUARANTINE of the control plane).',
    args: [DOMAIN],
    options: [YES],
    aboutProject: true,
    routes: ['getProject', 'patchProject'],
    async run(cli, args, { yes }) {
      const domain = normal(argument(args, 0));
      const { name, domains } = await cli.project();
      const check = (present: readonly string[]): void => {
        if (!present.includes(domain))
          throw refused(
            'not_found',
            `${name} has no domain ${domain}`,
            `berth domain list ${name}`,
          );
      };
      check(domains);
      await confirmed(
        cli.io,
        yes === true,
        `Remove ${domain} from ${name}? Its visitors get no answer there any more.`,
      );
      const project = await changeProject(cli, async (present) => {
        check(present.domains);
        return { domains: present.domains.filter((one) => one !== domain) };
      });
      cli.print({ domains: project.domains }, () => `${name} is no longer published at ${domain}`);
    },
  },
  {
    name: 'domain check',
    summary:
      'Check whether the custom domains of a project lead here and have certificates; exits 1 ' +
      'if one has a problem',
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['projectDomains'],
    async run(cli, [named]) {
      const { id, name } = await cli.project(named);
      const items = await domainsOf(cli, id);
      list(cli, items, name);
      const bad = items.filter((item) => problemsOf(item).length > 0);
      if (bad.length > 0)
        throw refused(
          'domain_problem',
          `${bad.length} of ${items.length} domains of ${name} have a problem: ` +
            bad.map((d) => d.domain).join(', '),
        );
    },
  },
  {
    name: 'domain free',
    summary: ROUTES.freeHost.summary,
    detail:
      'For admins. Browsers of its visitors may still hold cookies for the host, and its next ' +
      'project gets them (docs/domains.md).',
    args: [
      {
        name: 'domain',
        doc: 'custom domain, host of a domain prefix, or the prefix alone',
        required: true,
      },
    ],
    options: [YES],
    routes: ['freeHost'],
    async run(cli, args, { yes }) {
      const host = argument(args, 0).trim();
      const risk = 'Its next project gets the cookies that browsers still hold for it.';
      await confirmed(cli.io, yes === true, `Free ${host} for other projects? ${risk}`);
      await cli.client().call('freeHost', { params: { host } });
      cli.print({ host }, () => `${host} is free`);
    },
  },
];
