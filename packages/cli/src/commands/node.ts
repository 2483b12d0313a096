/** Commands for nodes, their disks, join tokens and admissions. */
import { AdmissionCreate, JoinTokenCreate } from '@berth/wire/joining';
import { ROUTES } from '@berth/wire/routes';
import { sizeText } from '@berth/wire/size-text';
import { confirmed } from '../ask.ts';
import { record, table } from '../output/text.ts';
import { toRemove } from '../output/to-remove.ts';
import { ago } from '../output/units.ts';
import { usage } from '../problem.ts';
import { argument, type Command } from './command.ts';
import { flagsOf } from './flags.ts';
import { listCommand, memberCommand } from './from-route.ts';
import {
  budgetText,
  evictedText,
  failoverText,
  labelsText,
  nodeText,
  sizeOf,
  volumeStateText,
  volumeText,
} from './node-text.ts';
import { YES } from './project.ts';

const NODE = { name: 'node', doc: 'hostname, role:hostname or id', required: true } as const;
const DATASET = { name: 'dataset', doc: 'name or id', required: true } as const;
const ID = { name: 'id', doc: 'id', required: true } as const;

/** Parses `NAME=VALUE` and `NAME-` (null: remove the label). */
function labelsIn(texts: readonly string[]): Record<string, string | null> {
  const pairs = texts.map((text): [string, string | null] => {
    const at = text.indexOf('=');
    if (at > 0) return [text.slice(0, at), text.slice(at + 1)];
    if (at === -1 && /^.+-$/.test(text)) return [text.slice(0, -1), null];
    throw usage(`${text}: write NAME=VALUE to set a label, or NAME- to remove it`);
  });
  return Object.fromEntries(pairs);
}

export const NODE_COMMANDS: readonly Command[] = [
  listCommand('listNodes', {
    name: 'node list',
    empty: 'no nodes; add one: berth node join-token --role builder',
    columns: (cli) => [
      { head: 'NODE', of: (n) => n.hostname },
      { head: 'ROLE', of: (n) => n.role },
      {
        head: 'STATUS',
        of: (n) =>
          `${n.status}${n.engine?.ok === false ? ', no engine' : ''}` +
          (n.schedulable ? '' : ', cordoned'),
      },
      { head: 'SEEN', of: (n) => ago(n.last_seen_at, cli.io.now()) },
      { head: 'FREE', of: (n) => (n.free_storage === null ? '–' : sizeText(n.free_storage)) },
      { head: 'AGENT', of: (n) => n.agent_version ?? 'contract-only' },
      { head: 'ADDRESS', of: (n) => n.host_ip },
      { head: 'ID', of: (n) => n.id },
    ],
  }),
  memberCommand('getNode', { name: 'node show', subject: NODE, text: nodeText }),
  memberCommand('cordonNode', {
    name: 'node cordon',
    subject: NODE,
    text: (_, n) => `${n.hostname} gets no new work`,
  }),
  memberCommand('uncordonNode', {
    name: 'node uncordon',
    subject: NODE,
    text: (_, n) => `${n.hostname} gets work again`,
  }),
  {
    name: 'failover',
    summary: ROUTES.failoverNode.summary,
    detail:
      'Berth does this by itself after FAILOVER_AFTER, except while most nodes are silent. A ' +
      'project that writes (a volume or a readwrite dataset) never moves: the command names it.',
    args: [NODE],
    options: [
      { flags: '--now', doc: 'do it: without this option nothing happens' },
      {
        flags: '--machine-is-off',
        doc: 'the machine has no power: also move projects with on_node_lost wait that only read',
      },
    ],
    routes: ['failoverNode'],
    async run(cli, args, options) {
      const id = argument(args, 0);
      if (options['now'] !== true)
        throw usage('this starts instances elsewhere at once', `berth failover ${id} --now`);
      const answer = await cli.client().call('failoverNode', {
        params: { id },
        body: { machine_is_off: options['machineIsOff'] === true },
      });
      cli.print(answer, () => failoverText(answer));
    },
  },
  {
    name: 'node label',
    summary: ROUTES.patchNode.summary,
    detail:
      'NAME=VALUE sets a label, NAME- removes one that an admin set. The labels of the agent ' +
      '(NODE_LABELS) stay; a label of an admin with the same name wins. A project names the labels ' +
      'that it requires: berth project edit --requires label:NAME=VALUE.',
    args: [
      NODE,
      { name: 'label', doc: 'NAME=VALUE, or NAME- to remove', required: true, repeats: true },
    ],
    routes: ['patchNode'],
    async run(cli, [id = '', ...texts]) {
      const labels = labelsIn(texts.map((text) => text ?? ''));
      const node = await cli.client().call('patchNode', { params: { id }, body: { labels } });
      cli.print(node, () => `labels of ${node.hostname}: ${labelsText(node) ?? 'none'}`);
    },
  },
  memberCommand('drainNode', {
    name: 'node drain',
    subject: NODE,
    text: (_, n) => `${n.hostname} drains; follow it: berth node show ${n.hostname}`,
  }),
  memberCommand('deleteNode', {
    name: 'node delete',
    subject: NODE,
    docs: { force: 'delete the node at once: it never comes back' },
    options: [YES],
    question: (n, { force }) =>
      force === true
        ? `Delete the node ${n} at once? Nothing moves: its routes end now, and volumes on it ` +
          'are only on its disk.'
        : `Delete the node ${n} and move its projects?`,
    text: (_, n) => [`${n.hostname} is being deleted`, ...toRemove(n.unmanaged)].join('\n'),
  }),
  {
    name: 'node removed',
    summary: ROUTES.confirmRemoved.summary,
    detail:
      'A contract-only agent removes no containers, so Berth lists those that nobody uses any ' +
      'more (berth node show). Remove the container on the machine first.',
    args: [NODE, { name: 'container', doc: 'name of the container', required: true }],
    options: [YES],
    routes: ['confirmRemoved'],
    async run(cli, args, { yes }) {
      const [id, container] = [argument(args, 0), argument(args, 1)];
      await confirmed(
        cli.io,
        yes === true,
        `Is ${container} gone from ${id}? Berth starts other versions as if it was.`,
      );
      const node = await cli.client().call('confirmRemoved', { params: { id, container } });
      const containers = node.unmanaged ?? [];
      cli.print(node, () =>
        containers.length === 0
          ? `nothing is left to remove on ${node.hostname}`
          : `left on ${node.hostname}: ${containers.map((c) => c.container).join(', ')}`,
      );
    },
  },
  memberCommand('resetNodeSecret', {
    name: 'node reset-secret',
    subject: NODE,
    text: (_, n) =>
      `the secret of ${n.hostname} is revoked; its agent needs AGENT_SECRET or a join token ` +
      '(berth node join-token) to register',
  }),
  {
    name: 'node prewarm',
    summary: ROUTES.prewarmNode.summary,
    args: [NODE, DATASET],
    routes: ['prewarmNode', 'getDataset'],
    async run(cli, args) {
      const dataset = await cli.client().call('getDataset', { params: { id: argument(args, 1) } });
      const node = await cli.client().call('prewarmNode', {
        params: { id: argument(args, 0) },
        body: { dataset_id: dataset.id },
      });
      cli.print(
        node,
        () =>
          `${node.hostname} copies ${dataset.name}; follow it: berth node show ${node.hostname}`,
      );
    },
  },
  memberCommand('cacheRoom', {
    name: 'node cache',
    subject: NODE,
    docs: { bytes: 'room to make, such as 20GiB' },
    text: (_, room) =>
      [
        `${sizeText(room.free_bytes)} free, ` +
          `${sizeText(room.pinned_bytes)} in use by containers and releases`,
        ...room.evict.map(
          ({ name, dataset_id, version, bytes }) =>
            `would be evicted: ${name ?? dataset_id} v${version} (${sizeText(bytes)})`,
        ),
        ...(room.wanted_bytes === 0
          ? []
          : [
              room.enough
                ? `${sizeText(room.wanted_bytes)} would fit`
                : `${sizeText(room.wanted_bytes)} would not fit`,
            ]),
      ].join('\n'),
  }),
  memberCommand('nodeDisk', {
    name: 'node disk',
    subject: NODE,
    docs: { bytes: 'room to make, such as 20GiB' },
    text: (cli, { disk, ...view }) =>
      [
        record([
          [
            'disk',
            disk === null
              ? 'not reported'
              : `${sizeText(disk.free)} free of ${sizeText(disk.total)}`,
          ],
          ['datasets', sizeOf(disk?.datasets)],
          ['images', sizeOf(disk?.images)],
          ['build cache', sizeOf(disk?.build_cache)],
          ['other', sizeOf(disk?.other)],
          ['budget', `${budgetText(view)}; ${sizeText(view.kept_bytes)} are needed`],
          ['note', view.unavailable ?? null],
        ]),
        ...view.evict.map(
          (one) => `would be evicted: ${evictedText(one)} (${sizeText(one.bytes)}): ${one.why}`,
        ),
        ...(view.wanted_bytes === 0
          ? []
          : [`${sizeText(view.wanted_bytes)} would ${view.enough ? '' : 'not '}fit`]),
        ...(view.copies ?? []).map(
          ({ name, version, bytes, why }) =>
            `pinned: ${name} v${version} ` +
            `(${bytes === null ? 'not copied yet' : sizeText(bytes)}): ${why}`,
        ),
        ...view.volumes.map((volume) => `volume: ${volumeText(cli, volume)}`),
      ].join('\n'),
  }),
  memberCommand('nodeVolumes', {
    name: 'node volumes',
    subject: NODE,
    text: (cli, { items }) =>
      items.length === 0
        ? 'no volumes'
        : table(items, [
            { head: 'PROJECT', of: (v) => v.project },
            {
              head: 'STATE',
              of: (v) => volumeStateText(cli, v),
            },
            {
              head: 'VOLUMES',
              of: (v) =>
                v.folders
                  .map((f) => (f.bytes === null ? f.name : `${f.name} (${sizeText(f.bytes)})`))
                  .join(', '),
            },
            { head: 'SINCE', of: (v) => ago(v.changed_at, cli.io.now()) },
            { head: 'COPY', of: (v) => v.copy },
          ]),
  }),
  {
    name: 'node volumes delete',
    summary: ROUTES.deleteNodeVolumes.summary,
    args: [NODE, { name: 'copy', doc: 'id of the copy (berth node volumes)', required: true }],
    options: [
      { flags: '--forget', doc: 'forget volumes that are missing because their disk is lost' },
      YES,
    ],
    routes: ['deleteNodeVolumes'],
    async run(cli, args, { yes, forget }) {
      const [id, copy] = [argument(args, 0), argument(args, 1)];
      if (forget === true) {
        await confirmed(
          cli.io,
          yes === true,
          `Forget these volumes on ${id}? Berth does not list or delete them if their disk ` +
            'comes back.',
        );
        const forgotten = await cli
          .client()
          .call('deleteNodeVolumes', { params: { id, copy }, query: { forget: true } });
        cli.print(
          forgotten,
          () => `the missing volumes of ${forgotten.project} on ${id} are forgotten`,
        );
        return;
      }
      await confirmed(
        cli.io,
        yes === true,
        `Delete these volumes on ${id} with their data? Nothing brings them back.`,
      );
      const deleted = await cli.client().call('deleteNodeVolumes', { params: { id, copy } });
      cli.print(deleted, () => `${id} deletes the volumes of ${deleted.project}`);
    },
  },
  {
    name: 'node join-token',
    summary: ROUTES.createJoinToken.summary,
    detail:
      'Prints the command for a root shell on the new machine, which asks for the token. The ' +
      'token is shown once.',
    options: flagsOf(JoinTokenCreate, { docs: { role: 'builder or deploy' } }).options.map((o) =>
      o.flags.startsWith('--role') ? { ...o, required: true as const } : o,
    ),
    routes: ['createJoinToken'],
    async run(cli, _, options) {
      const body = flagsOf(JoinTokenCreate).read(options) as { role: 'builder' | 'deploy' };
      const made = await cli.client().call('createJoinToken', { body });
      cli.print(made, () => `token: ${made.token}\n${made.command}`);
      for (const note of made.notes) cli.say(`note: ${note}`);
      cli.say(`valid for one machine until ${made.expires_at}; the token is not shown again`);
    },
  },
  listCommand('listJoinTokens', {
    name: 'node join-token list',
    empty: 'no join tokens',
    columns: (cli) => [
      { head: 'ID', of: (t) => t.id },
      { head: 'ROLE', of: (t) => t.role },
      { head: 'NAME', of: (t) => t.name ?? 'any' },
      { head: 'CREATED', of: (t) => ago(t.created_at, cli.io.now()) },
      { head: 'USED', of: (t) => (t.used_at === null ? 'no' : ago(t.used_at, cli.io.now())) },
    ],
  }),
  memberCommand('deleteJoinToken', {
    name: 'node join-token delete',
    subject: { ...ID, doc: 'id of the token (berth node join-token list)' },
    text: () => 'the join token is deleted',
  }),
  {
    name: 'node admission create',
    summary: ROUTES.createAdmission.summary,
    options: flagsOf(AdmissionCreate, {
      docs: { hostname: 'hostname of the machine', role: 'builder or deploy' },
    }).options.map((o) => ({
      ...o,
      required: true as const,
    })),
    routes: ['createAdmission'],
    async run(cli, _, options) {
      const made = await cli.client().call('createAdmission', {
        body: flagsOf(AdmissionCreate).read(options) as {
          hostname: string;
          role: 'builder' | 'deploy';
        },
      });
      cli.print(made, () => `${made.role} ${made.hostname} is admitted (${made.id})`);
    },
  },
  {
    name: 'node admission list',
    summary: ROUTES.listAdmissions.summary,
    routes: ['listAdmissions'],
    async run(cli) {
      const { items } = await cli.client().call('listAdmissions', {});
      cli.print({ items }, () =>
        items.length === 0
          ? 'no admissions'
          : table(items, [
              { head: 'ID', of: (a) => a.id },
              { head: 'HOSTNAME', of: (a) => a.hostname },
              { head: 'ROLE', of: (a) => a.role },
              { head: 'ADDRESS', of: (a) => a.address ?? '–' },
            ]),
      );
    },
  },
  memberCommand('deleteAdmission', {
    name: 'node admission delete',
    subject: { ...ID, doc: 'id of the admission (berth node admission list)' },
    text: () => 'the admission is deleted',
  }),
];
