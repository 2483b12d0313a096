/** Completes names that the server or this machine knows. */
import type { Client } from '@berth/wire/client';
import type { Project } from '@berth/wire/project';
import { readContexts } from '../session/contexts.ts';
import type { Cli } from '../cli.ts';
import type { Session } from '../session/session.ts';
import type { Candidate, Wanted } from './words.ts';

/** Maximum number of names; people do not read more. */
const MOST = 200;

type Asked = Wanted & {
  cli: Cli;
  client: Client;
  projectOf(named: string | undefined): Promise<Project>;
};
type Source = (asked: Asked) => Promise<Candidate[]>;

const query = { limit: MOST };
const projects: Source = async ({ client }) =>
  (await client.call('listProjects', { query })).items.map((p) => ({
    word: p.name,
    doc: p.url ?? '',
  }));
const deployments: Source = async ({ client, projectOf, project }) => {
  const { id } = await projectOf(project);
  const { items } = await client.call('projectDeployments', {
    params: { id },
    query: { limit: 20 },
  });
  return items.map((d) => ({
    word: d.id,
    doc: `${d.generation} ${d.status} ${d.commit?.slice(0, 8) ?? ''}`,
  }));
};
const nodes: Source = async ({ client }) => {
  const { items } = await client.call('listNodes', { query });
  const isAlone = (hostname: string): boolean =>
    items.filter((node) => node.hostname === hostname).length === 1;
  return items.map((n) => ({
    word: isAlone(n.hostname) ? n.hostname : n.id,
    doc: `${n.role} ${n.hostname}, ${n.status}`,
  }));
};
const datasets: Source = async ({ client }) =>
  (await client.call('listDatasets', { query })).items.map((d) => ({
    word: d.name,
    doc: d.status,
  }));
const users: Source = async ({ client }) =>
  (await client.call('listUsers', { query })).items.map((u) => ({ word: u.email, doc: u.role }));
const notifications: Source = async ({ client }) =>
  (await client.call('listNotifications', { query })).items.map((n) => ({
    word: n.name,
    doc: `${n.kind} ${n.target}`,
  }));
const contexts: Source = async ({ cli }) =>
  Object.entries(readContexts(cli.io.config).contexts).map(([word, { url }]) => ({
    word,
    doc: url,
  }));
const secrets: Source = async ({ client, projectOf, project }) => {
  const { id } = await projectOf(project);
  return (await client.call('listSecrets', { params: { id } })).items.map((s) => ({
    word: s.name,
    doc: s.scope,
  }));
};
const variables: Source = async ({ projectOf, project }) =>
  (await projectOf(project)).env_names.map((word) => ({ word, doc: '' }));

const runs: Source = async ({ client, projectOf, project }) => {
  const { id } = await projectOf(project);
  const { items } = await client.call('projectRuns', { params: { id }, query: { limit: 20 } });
  return items.map((run) => ({ word: run.id, doc: `${run.status} ${run.command.join(' ')}` }));
};
const jobs: Source = async ({ client, projectOf, project }) => {
  const { id } = await projectOf(project);
  const { items } = await client.call('listJobs', { params: { id } });
  return items.map((job) => ({ word: job.name, doc: `${job.schedule} ${job.timezone}` }));
};
const processes: Source = async ({ projectOf, project }) =>
  (await projectOf(project)).processes.map(({ name, count = 1 }) => ({
    word: name,
    doc: `${count} instances`,
  }));
const nothing: Source = async () => [];

/** Sources of names by `command: value` or by the value alone (an argument or an option). */
const SOURCES: Readonly<Record<string, Source>> = {
  project: projects,
  '--project': projects,
  deployment: deployments,
  '--to': async (asked) => {
    const { id } = await asked.projectOf(asked.args[0] ?? asked.project);
    const { items } = await asked.client.call('projectDeployments', {
      params: { id },
      query: { limit: 20 },
    });
    return items
      .filter((d) => d.image_tag !== null && ['running', 'retired'].includes(d.status))
      .map((d) => ({
        word: String(d.generation),
        doc: `${d.status} ${d.commit?.slice(0, 8) ?? ''}`,
      }));
  },
  run: runs,
  job: jobs,
  process: processes,
  '--process': processes,
  // A new name, not one of those that are there.
  'job add: job': nothing,
  node: nodes,
  dataset: datasets,
  '--dataset': datasets,
  user: users,
  notification: notifications,
  '--context': contexts,
  'context use: name': contexts,
  'context remove: name': contexts,
  'env set: NAME': variables,
  'env unset: NAME': variables,
  'secret import: NAME': variables,
  'secret set: NAME': secrets,
  'secret show: NAME': secrets,
  'secret unset: NAME': secrets,
  'domain remove: domain': async ({ projectOf, project }) =>
    (await projectOf(project)).domains.map((word) => ({ word, doc: '' })),
  'node removed: container': async ({ client, args }) => {
    const node = await client.call('getNode', { params: { id: args[0] ?? '' } });
    return (node.unmanaged ?? []).map((c) => ({ word: c.container, doc: c.project }));
  },
  'node volumes delete: copy': async ({ client, args }) => {
    const { items } = await client.call('nodeVolumes', { params: { id: args[0] ?? '' } });
    return items.map((v) => ({ word: v.copy, doc: `${v.project}, ${v.state}` }));
  },
  delivery: async ({ client, projectOf, project }) => {
    const { id } = await projectOf(project);
    const { items } = await client.call('listDeliveries', { params: { id }, query: { limit: 20 } });
    return items.map((d) => ({ word: d.id, doc: `${d.event} ${d.verdict ?? 'checking'}` }));
  },
  host: async ({ client }) =>
    (await client.call('listGitHosts', {})).items.map(({ host }) => ({ word: host, doc: '' })),
  'token delete: id': async ({ client }) =>
    (await client.call('listTokens', { query })).items.map((t) => ({
      word: t.id,
      doc: `${t.name}, ${t.role}`,
    })),
  'device delete: id': async ({ client }) =>
    (await client.call('listDeviceTokens', { query })).items.map((t) => ({
      word: t.id,
      doc: t.user_agent,
    })),
  'node join-token delete: id': async ({ client }) =>
    (await client.call('listJoinTokens', { query })).items.map((t) => ({
      word: t.id,
      doc: t.role,
    })),
  'node admission delete: id': async ({ client }) =>
    (await client.call('listAdmissions', {})).items.map((a) => ({
      word: a.id,
      doc: `${a.role} ${a.hostname}`,
    })),
};

export const sourceOf = ({
  command,
  value,
}: Pick<Wanted, 'command' | 'value'>): Source | undefined =>
  SOURCES[`${command.name}: ${value}`] ?? SOURCES[value];
/** Returns whether the names come from this machine, so that they need no session. */
export const isLocal = (source: Source): boolean => source === contexts;

export const readNames = (
  source: Source,
  wanted: Wanted,
  cli: Cli,
  session: Session | null,
): Promise<Candidate[]> =>
  source({
    ...wanted,
    cli,
    get client() {
      return (session ?? cli.session()).client;
    },
    projectOf: (named) => cli.projectOf(session ?? cli.session(), named),
  });
