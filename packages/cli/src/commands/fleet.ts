/**
 * Verbs of operators: node, dataset, user, token, device, audit. Most rows follow from their row of
 * the route table.
 */
import { defined } from '@berth/kit/defined';
import type { User } from '@berth/wire/user';
import { DatasetCreate, type DatasetDiff, DatasetPatch, DatasetScan } from '@berth/wire/dataset';
import { AdmissionCreate, JoinTokenCreate } from '@berth/wire/joining';
import type { Node } from '@berth/wire/node';
import { projectsWithMovingPorts } from '@berth/wire/moving-ports';
import { ROUTES } from '@berth/wire/routes';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import type { NodeVolumes } from '@berth/wire/volume';
import { confirmed, readValue } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { refused, usage } from '../problem.ts';
import { allPages } from '../project/pages.ts';
import { record, table } from '../output/text.ts';
import { toRemove } from '../output/to-remove.ts';
import { ago, bytes } from '../output/units.ts';
import { argument, type Command, textOf } from './command.ts';
import { flagsOf } from './flags.ts';
import { listCommand, memberCommand } from './from-route.ts';
import { YES } from './project.ts';

const NODE = { name: 'node', doc: 'hostname, role:hostname or id', required: true } as const;
const DATASET = { name: 'dataset', doc: 'name or id', required: true } as const;
const USER = { name: 'user', doc: 'e-mail address or id', required: true } as const;
const ID = { name: 'id', doc: 'id', required: true } as const;

function movingPortsText({ containers }: Node): string | null {
  const projects = projectsWithMovingPorts(containers);
  return projects.length === 0
    ? null
    : `${projects.length}, until berth restart PROJECT: ${projects.join(', ')}`;
}

const missingText = (cli: Cli, { missing_since }: Pick<NodeVolumes, 'missing_since'>): string =>
  missing_since === null || missing_since === undefined
    ? ''
    : `, missing (last seen ${ago(missing_since, cli.io.now())})`;
const nodeText = (cli: Cli, node: Node): string =>
  record([
    ['node', `${node.hostname} (${node.role}, ${node.id})`],
    [
      'status',
      `${node.status}${node.schedulable ? '' : ', cordoned'}` +
        `${node.deleting ? ', being deleted' : ''}; last seen ` +
        ago(node.last_seen_at, cli.io.now()),
    ],
    ['address', node.host_ip],
    ['agent', node.agent_version ?? 'contract-only'],
    [
      'engine',
      node.engine === null
        ? null
        : node.engine.ok
          ? (node.engine.version ?? 'answers')
          : `does not answer: ${node.engine.error}`,
    ],
    ['storage', `${bytes(node.free_storage ?? 0)} free of ${bytes(node.max_storage)}`],
    [
      'datasets',
      node.cached.length === 0
        ? null
        : node.cached
            .map((one) => `${one.name ?? one.dataset_id} v${one.version} (${bytes(one.bytes)})`)
            .join(', '),
    ],
    ['containers', String(node.containers.length)],
    [
      'doubled',
      node.doubled === null
        ? null
        : `${node.doubled.host_ip} registers under this name and is refused`,
    ],
    [
      'address taken',
      node.address_taken ? `node ${node.address_taken.hostname} is online at this address` : null,
    ],
    ['moving ports', movingPortsText(node)],
    [
      'quarantined',
      (node.quarantined ?? []).length === 0 ? null : (node.quarantined ?? []).join(', '),
    ],
    [
      'to remove',
      (node.unmanaged ?? []).length === 0
        ? null
        : (node.unmanaged ?? []).map((c) => `${c.container} (${c.project})`).join(', '),
    ],
    [
      'copying',
      (node.copying ?? []).length === 0
        ? null
        : (node.copying ?? []).map((c) => `${c.name} v${c.version}: ${c.status}`).join(', '),
    ],
    [
      'drain',
      node.drain === null || node.drain === undefined
        ? null
        : node.drain.finished_at === null
          ? `${node.drain.moved} moved, ${node.drain.left.length} left: ` +
            node.drain.left
              .map((l) => `${l.project}${l.problem === null ? '' : ` (${l.problem})`}`)
              .join(', ')
          : `done: ${node.drain.moved} moved`,
    ],
  ]);

const evictedText = ({ kind, name }: { kind: string; name: string }): string =>
  kind === 'build_cache' ? name : `${kind} ${name}`;
const budgetText = ({
  free_bytes,
  budget_bytes,
}: {
  free_bytes: number;
  budget_bytes: number;
}): string =>
  free_bytes < 0
    ? `${bytes(-free_bytes)} more than ${bytes(budget_bytes)} are used`
    : `${bytes(free_bytes)} free of ${bytes(budget_bytes)}`;

/** Reads a version as people write it: 7 or v7. */
function versionNumber(text: string): number {
  const [, digits] = /^v?([1-9]\d{0,14})$/.exec(text) ?? [];
  if (digits === undefined) throw usage(`${text} is not a version`, 'berth dataset versions NAME');
  return Number(digits);
}

const sizeOf = (size: number | null | undefined): string | null =>
  size === null || size === undefined ? null : bytes(size);

export const FLEET_COMMANDS: readonly Command[] = [
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
      { head: 'FREE', of: (n) => (n.free_storage === null ? '–' : bytes(n.free_storage)) },
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
      const left = node.unmanaged ?? [];
      cli.print(node, () =>
        left.length === 0
          ? `nothing is left to remove on ${node.hostname}`
          : `left on ${node.hostname}: ${left.map((c) => c.container).join(', ')}`,
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
        `${bytes(room.free_bytes)} free, ${bytes(room.pinned_bytes)} in use by containers and ` +
          'releases',
        ...room.evict.map(
          (one) =>
            `would be evicted: ${one.name ?? one.dataset_id} v${one.version} (${bytes(one.bytes)})`,
        ),
        ...(room.wanted_bytes === 0
          ? []
          : [
              room.enough
                ? `${bytes(room.wanted_bytes)} would fit`
                : `${bytes(room.wanted_bytes)} would not fit`,
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
            disk === null ? 'not reported' : `${bytes(disk.free)} free of ${bytes(disk.total)}`,
          ],
          ['datasets', sizeOf(disk?.datasets)],
          ['images', sizeOf(disk?.images)],
          ['build cache', sizeOf(disk?.build_cache)],
          ['other', sizeOf(disk?.other)],
          ['budget', `${budgetText(view)}; ${bytes(view.kept_bytes)} are needed`],
          ['note', view.unavailable ?? null],
        ]),
        ...view.evict.map(
          (one) => `would be evicted: ${evictedText(one)} (${bytes(one.bytes)}): ${one.why}`,
        ),
        ...(view.wanted_bytes === 0
          ? []
          : [`${bytes(view.wanted_bytes)} would ${view.enough ? '' : 'not '}fit`]),
        ...view.volumes.map(
          (v) =>
            `volume: ${v.project}/${v.name} (${sizeOf(v.bytes) ?? 'not counted'})` +
            `${v.kept_of_deleted ? ', kept, project deleted' : ''}${missingText(cli, v)}`,
        ),
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
              of: (v) =>
                `${v.state === 'kept' ? 'kept, project deleted' : v.state.replace('_', ' ')}${missingText(cli, v)}`,
            },
            {
              head: 'VOLUMES',
              of: (v) =>
                v.folders
                  .map((f) => (f.bytes === null ? f.name : `${f.name} (${bytes(f.bytes)})`))
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

  listCommand('listDatasets', {
    name: 'dataset list',
    empty: 'no datasets; register one: berth dataset create NAME --nfs-path FOLDER',
    columns: (cli) => [
      { head: 'NAME', of: (d) => d.name },
      { head: 'STATUS', of: (d) => `${d.status}${d.scanning ? ', scanning' : ''}` },
      { head: 'VERSION', of: (d) => (d.version === null ? '–' : `v${d.version}`) },
      { head: 'FILES', of: (d) => String(d.files) },
      { head: 'SIZE', of: (d) => bytes(d.bytes) },
      { head: 'SCANNED', of: (d) => ago(d.last_scanned_at, cli.io.now()) },
      { head: 'FOLDER', of: (d) => d.nfs_path },
      { head: 'PROBLEM', of: (d) => d.problem ?? '' },
    ],
  }),
  {
    name: 'dataset create',
    summary: ROUTES.createDataset.summary,
    args: [{ name: 'name', doc: 'name of the dataset', required: true }],
    options: flagsOf(DatasetCreate, {
      leaveOut: ['name'],
      docs: { nfs_path: 'folder of the shared storage, relative to DATASET_NFS_BASE_PATH' },
    }).options.map((o) => ({
      ...o,
      required: true as const,
    })),
    routes: ['createDataset'],
    async run(cli, args, { nfsPath }) {
      const dataset = await cli
        .client()
        .call('createDataset', { body: { name: argument(args, 0), nfs_path: String(nfsPath) } });
      cli.print(dataset, () => `registered ${dataset.name}; its first scan has started`);
    },
  },
  memberCommand('getDataset', {
    name: 'dataset show',
    subject: DATASET,
    text: (cli, d) =>
      record([
        ['dataset', `${d.name} (${d.id})`],
        ['status', `${d.status}${d.scanning ? ', a scan is in progress' : ''}`],
        ['problem', d.problem],
        [
          'version',
          d.version === null ? 'none yet' : `v${d.version}, ${d.files} files, ${bytes(d.bytes)}`,
        ],
        ['folder', d.nfs_path],
        ['scanned', ago(d.last_scanned_at, cli.io.now())],
        [
          'skipped',
          d.skipped.count === 0
            ? null
            : `${d.skipped.count} files: ${d.skipped.first
                .slice(0, 3)
                .map((s) => `${s.path} (${s.reason})`)
                .join(', ')}`,
        ],
      ]),
  }),
  memberCommand('patchDataset', {
    name: 'dataset edit',
    subject: DATASET,
    body: DatasetPatch,
    docs: {
      name: 'new name',
      nfs_path: 'folder of the shared storage, relative to DATASET_NFS_BASE_PATH',
    },
    text: (_, d) => `changed ${d.name}`,
  }),
  memberCommand('deleteDataset', {
    name: 'dataset delete',
    subject: DATASET,
    options: [YES],
    question: (n) => `Delete the dataset ${n}? Its files on the share stay.`,
    text: (_, d) => `${d?.name ?? 'the dataset'} is being deleted`,
  }),
  memberCommand('scanDataset', {
    name: 'dataset scan',
    subject: DATASET,
    body: DatasetScan,
    docs: {
      full: 'hash every file again',
      accept_loss: 'record what is left of a suspicious dataset as a new version',
      accept_share: 'accept the share that is mounted now, although it is another one',
    },
    text: (_, d) => `the scan of ${d.name} has started; see: berth dataset show ${d.name}`,
  }),
  {
    name: 'dataset versions',
    summary: ROUTES.datasetVersions.summary,
    args: [DATASET],
    options: [
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: Number },
    ],
    routes: ['datasetVersions'],
    async run(cli, args, { limit }) {
      const items = await allPages(
        (cursor) =>
          cli.client().call('datasetVersions', {
            params: { id: argument(args, 0) },
            query: { limit: 50, ...cursor },
          }),
        limitOf(limit),
      );
      cli.print({ items }, () =>
        items.length === 0
          ? 'no versions yet'
          : table(items, [
              { head: 'VERSION', of: (v) => `v${v.version}` },
              { head: 'CREATED', of: (v) => ago(v.created_at, cli.io.now()) },
              { head: 'FILES', of: (v) => String(v.files) },
              { head: 'SIZE', of: (v) => bytes(v.bytes) },
              { head: 'MANIFEST', of: (v) => v.manifest_digest },
            ]),
      );
    },
  },
  {
    name: 'dataset diff',
    summary: ROUTES.datasetDiff.summary,
    args: [
      DATASET,
      { name: 'from', required: true, doc: 'version that is compared' },
      { name: 'to', required: true, doc: 'version that it is compared with' },
    ],
    options: [
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: Number },
    ],
    routes: ['datasetDiff'],
    async run(cli, args, { limit }) {
      const query = {
        from: versionNumber(argument(args, 1)),
        to: versionNumber(argument(args, 2)),
        limit: Math.min(limitOf(limit), 200),
      };
      let first: DatasetDiff | null = null;
      const items = await allPages(async (cursor) => {
        const page = await cli.client().call('datasetDiff', {
          params: { id: argument(args, 0) },
          query: { ...query, ...cursor },
        });
        first ??= page;
        return page;
      }, limitOf(limit));
      const { from, to, totals } = first as unknown as DatasetDiff;
      cli.print({ from, to, totals, items }, () => {
        const { added, modified, removed, complete } = totals;
        const counts = [
          `${added.files} added (${bytes(added.bytes)})`,
          `${modified.files} modified (${bytes(modified.previous_bytes)} before, ` +
            `${bytes(modified.bytes)} now)`,
          `${removed.files} removed (${bytes(removed.bytes)})`,
        ];
        const head = `v${from.version} to v${to.version}: ${complete ? '' : 'at least '}${counts.join(', ')}`;
        if (items.length === 0) return head;
        const rows = table(items, [
          { head: 'CHANGE', of: (d) => d.change },
          { head: 'BEFORE', of: (d) => (d.previous_size === null ? '' : bytes(d.previous_size)) },
          { head: 'NOW', of: (d) => (d.size === null ? '' : bytes(d.size)) },
          { head: 'PATH', of: (d) => d.path },
        ]);
        return `${head}\n\n${rows}`;
      });
    },
  },
  {
    name: 'dataset history',
    summary: ROUTES.datasetHistory.summary,
    args: [DATASET],
    options: [
      { flags: '--path <path>', doc: 'a file, or a folder with a trailing “/”' },
      { flags: '--version <number>', doc: 'only the changes of this version', parse: Number },
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: Number },
    ],
    routes: ['datasetHistory'],
    async run(cli, args, options) {
      const path = textOf(options, 'path');
      const { version, limit } = options;
      const query = {
        limit: Math.min(limitOf(limit), 200),
        ...defined({ path, version: version === undefined ? undefined : Number(version) }),
      };
      const items = await allPages(
        (cursor) =>
          cli.client().call('datasetHistory', {
            params: { id: argument(args, 0) },
            query: { ...query, ...cursor },
          }),
        limitOf(limit),
      );
      cli.print({ items }, () =>
        items.length === 0
          ? 'no changes'
          : table(items, [
              { head: 'VERSION', of: (h) => `v${h.version}` },
              { head: 'AT', of: (h) => h.at },
              { head: 'CHANGE', of: (h) => h.change },
              { head: 'SIZE', of: (h) => (h.size === null ? '' : bytes(h.size)) },
              { head: 'PATH', of: (h) => h.path },
            ]),
      );
    },
  },

  listCommand('listUsers', {
    name: 'user list',
    empty: 'no users',
    columns: (cli) => [
      { head: 'EMAIL', of: (u) => u.email },
      { head: 'ROLE', of: (u) => u.role },
      { head: 'STATE', of: (u) => (u.disabled ? 'disabled' : 'enabled') },
      { head: 'LAST LOGIN', of: (u) => ago(u.last_login_at, cli.io.now()) },
      { head: 'ID', of: (u) => u.id },
    ],
  }),
  {
    name: 'user create',
    summary: ROUTES.createUser.summary,
    args: [{ name: 'email', doc: 'e-mail address', required: true }],
    options: [
      { flags: '--role <role>', doc: 'role in the API', required: true, choices: ROLES },
      { flags: '--password', doc: 'set a password, from a prompt or from standard input' },
    ],
    routes: ['createUser'],
    async run(cli, args, { role, password }) {
      const given =
        password === true
          ? { password: await readValue(cli.io, `Password of ${argument(args, 0)}`, true) }
          : {};
      const user = await cli
        .client()
        .call('createUser', { body: { email: argument(args, 0), role: role as Role, ...given } });
      cli.print(user, () => `created ${user.email} (${user.role})`);
    },
  },
  {
    name: 'user show',
    summary: ROUTES.getUser.summary,
    args: [USER],
    routes: ['getUser', 'listUsers'],
    async run(cli, args) {
      const user = await cli
        .client()
        .call('getUser', { params: { id: await userId(cli, argument(args, 0)) } });
      cli.print(user, () =>
        record([
          ['user', user.email],
          ['id', user.id],
          ['role', user.role],
          ['state', user.disabled ? 'disabled' : 'enabled'],
          ['last login', ago(user.last_login_at, cli.io.now())],
        ]),
      );
    },
  },
  {
    name: 'user edit',
    summary: ROUTES.patchUser.summary,
    args: [USER],
    options: [
      { flags: '--role <role>', doc: 'role in the API', choices: ROLES },
      { flags: '--disable', doc: 'disable the account: its sessions and tokens end' },
      { flags: '--enable', doc: 'enable the account' },
      { flags: '--password', doc: 'set a password, from a prompt or from standard input' },
      {
        flags: '--no-password',
        doc: 'remove the password: the user signs in through the gateway only',
      },
    ],
    routes: ['patchUser', 'listUsers'],
    async run(cli, args, { role, disable, enable, password }) {
      if (disable === true && enable === true)
        throw usage('--disable and --enable exclude one another');
      const id = await userId(cli, argument(args, 0));
      const body = {
        ...defined({ role: role === undefined ? undefined : (role as Role) }),
        ...(disable === true ? { disabled: true } : enable === true ? { disabled: false } : {}),
        ...(password === true
          ? { password: await readValue(cli.io, `New password of ${argument(args, 0)}`, true) }
          : password === false
            ? { password: null }
            : {}),
      };
      if (Object.keys(body).length === 0)
        throw usage('nothing was given to change', 'berth user edit --help');
      const user = await cli.client().call('patchUser', { params: { id }, body });
      cli.print(
        user,
        () => `changed ${user.email}: ${user.role}, ${user.disabled ? 'disabled' : 'enabled'}`,
      );
    },
  },
  {
    name: 'user delete',
    summary: ROUTES.deleteUser.summary,
    args: [USER],
    options: [YES],
    routes: ['deleteUser', 'listUsers'],
    async run(cli, args, { yes }) {
      const id = await userId(cli, argument(args, 0));
      await confirmed(cli.io, yes === true, `Delete the user ${argument(args, 0)}?`);
      await cli.client().call('deleteUser', { params: { id } });
      cli.print({ deleted: id }, () => `deleted ${argument(args, 0)}`);
    },
  },
  {
    name: 'user password',
    summary: 'Change your own password; all your sessions end',
    detail:
      'Both passwords come from prompts; without a terminal, from two lines of standard input: ' +
      'the old one, then the new one.',
    routes: ['changePassword'],
    async run(cli) {
      const [old_password = '', new_password = ''] = cli.io.terminal.in
        ? [
            await readValue(cli.io, 'Your password', true),
            await readValue(cli.io, 'Your new password', true),
          ]
        : (await cli.io.readStdin(10_000)).split(/\r?\n/);
      await cli.client().call('changePassword', { body: { old_password, new_password } });
      cli.print(
        { changed: true },
        () => 'your password is changed; sign in again: berth login --email ADDRESS',
      );
    },
  },

  listCommand('listTokens', {
    name: 'token list',
    empty: 'no tokens; create one: berth token create NAME',
    columns: (cli) => [
      { head: 'NAME', of: (t) => t.name },
      { head: 'ROLE', of: (t) => t.role },
      { head: 'PROJECTS', of: (t) => (t.projects === null ? 'all' : String(t.projects.length)) },
      { head: 'EXPIRES', of: (t) => t.expires_at.slice(0, 10) },
      { head: 'LAST USED', of: (t) => ago(t.last_used_at, cli.io.now()) },
      { head: 'ID', of: (t) => t.id },
    ],
  }),
  {
    name: 'token create',
    summary: 'Create a personal API token for a program such as CI; prints the token once',
    args: [{ name: 'name', doc: 'what the token is for', required: true }],
    options: [
      { flags: '--role <role>', doc: 'at most your own role (default: developer)', choices: ROLES },
      {
        flags: '--expires <days>',
        doc: 'days until it expires, at most 365 (default 90)',
        parse: days,
      },
      {
        flags: '--project <project>',
        doc: 'limit the token to this project, by name or id; may be given several times',
        repeats: true,
      },
    ],
    routes: ['createToken'],
    async run(cli, args, { role, expires, project }) {
      const projects = project as string[] | undefined;
      const expires_at = new Date(
        cli.io.now() + ((expires as number | undefined) ?? 90) * 86_400_000 - 60_000,
      ).toISOString();
      const body = {
        name: argument(args, 0),
        role: (role as Role | undefined) ?? 'developer',
        expires_at,
      };
      const made = await cli.client().call('createToken', {
        body: { ...body, ...defined({ projects }) },
      });
      cli.print(made, () => made.token);
      cli.say(
        `role ${made.role}, valid until ${made.expires_at.slice(0, 10)}; the token is not ` +
          'shown again. Set it as BERTH_TOKEN',
      );
    },
  },
  memberCommand('deleteToken', {
    name: 'token delete',
    subject: { ...ID, doc: 'id of the token' },
    text: () => 'the token is revoked',
  }),
  listCommand('listDeviceTokens', {
    name: 'device list',
    empty: 'no device tokens',
    columns: (cli) => [
      { head: 'EMAIL', of: (t) => t.email },
      { head: 'SCOPE', of: (t) => t.scope },
      { head: 'DEVICE', of: (t) => t.user_agent },
      { head: 'CREATED', of: (t) => ago(t.created_at, cli.io.now()) },
      { head: 'LAST USED', of: (t) => ago(t.last_used_at, cli.io.now()) },
      { head: 'ID', of: (t) => t.id },
    ],
  }),
  memberCommand('deleteDeviceToken', {
    name: 'device delete',
    subject: { ...ID, doc: 'id of the device token' },
    text: () => 'the device token is revoked',
  }),
  {
    name: 'audit',
    summary: ROUTES.audit.summary,
    options: [
      ...flagsOf(ROUTES.audit.query, { leaveOut: ['limit', 'cursor'] }).options,
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: Number },
    ],
    routes: ['audit'],
    async run(cli, _, options) {
      const query = flagsOf(ROUTES.audit.query, { leaveOut: ['limit', 'cursor'] }).read(options);
      const limit = limitOf(options['limit']);
      const items = await allPages(
        (cursor) =>
          cli
            .client()
            .call('audit', { query: { limit: Math.min(limit, 200), ...query, ...cursor } }),
        limit,
      );
      cli.print({ items }, () =>
        table(items, [
          { head: 'AT', of: (a) => a.at },
          { head: 'USER', of: (a) => a.user ?? '–' },
          { head: 'ACTION', of: (a) => a.action },
          { head: 'TARGET', of: (a) => a.target ?? '' },
          {
            head: 'OUTCOME',
            of: (a) => (a.code === null ? a.outcome : `${a.outcome} (${a.code})`),
          },
          { head: 'ADDRESS', of: (a) => a.address },
        ]),
      );
    },
  },
];

function limitOf(given: unknown): number {
  const limit = (given as number | undefined) ?? 50;
  if (!Number.isInteger(limit) || limit < 1)
    throw usage('--limit must be a whole number of at least 1');
  return limit;
}

function days(text: string): number {
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1 || count > 365)
    throw new Error('must be a number of days from 1 to 365');
  return count;
}

export const allUsers = (cli: Cli): Promise<User[]> =>
  allPages((cursor) => cli.client().call('listUsers', { query: { limit: 200, ...cursor } }));

/** The API knows users by id only. */
export async function userId(cli: Cli, named: string): Promise<string> {
  if (!named.includes('@')) return named;
  const users = await allUsers(cli);
  const found = users.find((user) => user.email === named.toLowerCase());
  if (found === undefined)
    throw refused('not_found', `there is no user “${named}”`, 'berth user list');
  return found.id;
}
