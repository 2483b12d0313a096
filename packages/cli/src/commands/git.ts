/**
 * Commands for private repositories: deploy keys, git tokens, git hosts. A token comes from a
 * prompt or from standard input.
 */
import { defined } from '@berth/kit/defined';
import { ROUTES } from '@berth/wire/routes';
import type { DeployKey, GitHost, GitToken } from '@berth/wire/git';
import { confirmed, readValue } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { refused, usage } from '../problem.ts';
import { record, table } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { argument, type Command } from './command.ts';
import { flagsOf } from './flags.ts';
import { PROJECT_ARGUMENT, YES } from './project.ts';

const HOST = {
  name: 'host',
  doc: 'host, or host:port if the port is not 22',
  required: true,
} as const;
const tokenFlags = flagsOf(ROUTES.putGitToken.body, {
  leaveOut: ['token'],
  docs: { username: 'name that goes with the token' },
});

const keyText = (key: DeployKey): string =>
  record([
    ['public key', key.public_key],
    ['fingerprint', key.fingerprint],
    ['created', key.created_at],
  ]);
const tokenText = (token: GitToken): string =>
  record([
    ['host', token.host],
    ['user name', token.username],
    ['api', token.api_url],
    ['set by', token.set_by],
    ['set', token.set_at],
  ]);
const keysOf = (host: GitHost) => [
  ...host.keys.map((key) => ({
    host: host.host,
    ...key,
    state: key.source === 'berth' ? 'pinned' : 'trusted',
  })),
  ...host.presented.map((key) => ({ host: host.host, ...key, state: 'not trusted' })),
];
const hostsText = (hosts: readonly GitHost[]): string =>
  table(hosts.flatMap(keysOf), [
    { head: 'HOST', of: (key) => key.host },
    { head: 'STATE', of: (key) => key.state },
    { head: 'TYPE', of: (key) => key.key_type ?? '–' },
    { head: 'FINGERPRINT', of: (key) => key.fingerprint },
  ]);

export const GIT_COMMANDS: readonly Command[] = [
  {
    name: 'deploy-key create',
    summary: ROUTES.createDeployKey.summary,
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['createDeployKey'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      const key = await cli.client().call('createDeployKey', { params: { id: project.id } });
      cli.print(key, () => keyText(key));
      cli.say('next: add the public key to the repository as a deploy key that may read');
    },
  },
  {
    name: 'deploy-key show',
    summary: ROUTES.getDeployKey.summary,
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['getDeployKey'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      const key = await cli.client().call('getDeployKey', { params: { id: project.id } });
      cli.print(key, () => keyText(key));
    },
  },
  {
    name: 'deploy-key delete',
    summary: ROUTES.deleteDeployKey.summary,
    args: [PROJECT_ARGUMENT],
    options: [YES],
    aboutProject: true,
    routes: ['deleteDeployKey'],
    async run(cli, [named], { yes }) {
      const project = await cli.project(named);
      await confirmed(cli.io, yes === true, `Delete the deploy key of ${project.name}?`);
      await cli.client().call('deleteDeployKey', { params: { id: project.id } });
      cli.print(
        { project: project.name, deleted: true },
        () => `deleted the deploy key of ${project.name}; remove it from the forge too`,
      );
    },
  },
  {
    name: 'git-token set',
    summary:
      'Set the token with which Berth reads the repository over https; it comes from a prompt ' +
      'or from standard input',
    args: [PROJECT_ARGUMENT],
    options: tokenFlags.options,
    aboutProject: true,
    routes: ['putGitToken'],
    async run(cli, [named], options) {
      const { id } = await cli.project(named);
      const client = cli.client();
      const { answer: project, etag } = await client.exchange('getProject', { params: { id } });
      if (project === null) throw refused('not_found', 'the project is gone');
      const token = await readValue(cli.io, `Git token for ${project.git_url}`, true);
      if (token === '')
        throw usage('the token is empty', 'give it on standard input: berth git-token set < FILE');
      const body = { token, ...tokenFlags.read(options) };
      // Send the ETag, so that the token goes only to the repository address that its owner saw.
      const headers = etag === null ? {} : { headers: { 'if-match': etag } };
      const answer = await client.call('putGitToken', { params: { id }, body, ...headers });
      cli.print(answer, () => `set the git token of ${project.name} for ${answer.host}`);
    },
  },
  {
    name: 'git-token show',
    summary: ROUTES.getGitToken.summary,
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['getGitToken'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      const token = await cli.client().call('getGitToken', { params: { id: project.id } });
      cli.print(token, () => tokenText(token));
    },
  },
  {
    name: 'git-token delete',
    summary: ROUTES.deleteGitToken.summary,
    args: [PROJECT_ARGUMENT],
    options: [YES],
    aboutProject: true,
    routes: ['deleteGitToken'],
    async run(cli, [named], { yes }) {
      const project = await cli.project(named);
      await confirmed(cli.io, yes === true, `Delete the git token of ${project.name}?`);
      await cli.client().call('deleteGitToken', { params: { id: project.id } });
      cli.print(
        { project: project.name, deleted: true },
        () => `deleted the git token of ${project.name}`,
      );
    },
  },
  {
    name: 'git-host list',
    summary: ROUTES.listGitHosts.summary,
    routes: ['listGitHosts'],
    async run(cli) {
      const { items } = await cli.client().call('listGitHosts', {});
      cli.print({ items }, () => hostsText(items));
    },
  },
  {
    name: 'git-host show',
    summary: ROUTES.getGitHost.summary,
    args: [HOST],
    routes: ['getGitHost'],
    async run(cli, args) {
      const host = await cli.client().call('getGitHost', { params: { host: argument(args, 0) } });
      cli.print(host, () => hostsText([host]));
      sayWhenSeen(cli, host);
    },
  },
  {
    name: 'git-host trust',
    summary: ROUTES.putGitHost.summary,
    detail: 'Compare the fingerprint with what the operator of the host publishes.',
    args: [HOST, { name: 'fingerprint', doc: 'SHA256:…', required: true }],
    options: [
      {
        flags: '--type <type>',
        doc: 'type of the host key, such as ssh-ed25519; default: what a builder saw',
      },
    ],
    routes: ['putGitHost'],
    async run(cli, args, { type }) {
      const body = {
        fingerprint: argument(args, 1),
        ...defined({ key_type: typeof type === 'string' ? type : undefined }),
      };
      const host = await cli
        .client()
        .call('putGitHost', { params: { host: argument(args, 0) }, body });
      cli.print(host, () => hostsText([host]));
    },
  },
  {
    name: 'git-host delete',
    summary: ROUTES.deleteGitHost.summary,
    args: [HOST],
    options: [YES],
    routes: ['deleteGitHost'],
    async run(cli, args, { yes }) {
      const host = argument(args, 0);
      await confirmed(
        cli.io,
        yes === true,
        `Forget the host keys of ${host}? Builds from it fail until an admin trusts it again.`,
      );
      await cli.client().call('deleteGitHost', { params: { host } });
      cli.print({ host, deleted: true }, () => `forgot the host keys of ${host}`);
    },
  },
];

function sayWhenSeen(cli: Cli, host: GitHost): void {
  const [newest] = host.presented.toSorted((a, b) => (a.seen_at < b.seen_at ? 1 : -1));
  if (newest !== undefined)
    cli.say(`a builder saw keys that are not trusted ${ago(newest.seen_at, cli.io.now())}`);
}
