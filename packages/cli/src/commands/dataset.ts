/** Commands for datasets, their versions and their history. */
import { defined } from '@berth/kit/defined';
import { DatasetCreate, type DatasetDiff, DatasetPatch, DatasetScan } from '@berth/wire/dataset';
import { ROUTES } from '@berth/wire/routes';
import { sizeText } from '@berth/wire/size-text';
import { usage } from '../problem.ts';
import { allPages } from '../project/pages.ts';
import { record, table } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { argument, type Command, textOf } from './command.ts';
import { flagsOf } from './flags.ts';
import { listCommand, memberCommand } from './from-route.ts';
import { limitOf } from './limit.ts';
import { YES } from './project.ts';
import { positive } from './number.ts';

const DATASET = { name: 'dataset', doc: 'name or id', required: true } as const;

export const DATASET_COMMANDS: readonly Command[] = [
  listCommand('listDatasets', {
    name: 'dataset list',
    empty: 'no datasets; register one: berth dataset create NAME --nfs-path FOLDER',
    columns: (cli) => [
      { head: 'NAME', of: (d) => d.name },
      { head: 'STATUS', of: (d) => `${d.status}${d.scanning ? ', scanning' : ''}` },
      { head: 'VERSION', of: (d) => (d.version === null ? '–' : `v${d.version}`) },
      { head: 'FILES', of: (d) => String(d.files) },
      { head: 'SIZE', of: (d) => sizeText(d.bytes) },
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
          d.version === null ? 'none yet' : `v${d.version}, ${d.files} files, ${sizeText(d.bytes)}`,
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
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: positive },
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
              { head: 'SIZE', of: (v) => sizeText(v.bytes) },
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
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: positive },
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
          `${added.files} added (${sizeText(added.bytes)})`,
          `${modified.files} modified (${sizeText(modified.previous_bytes)} before, ` +
            `${sizeText(modified.bytes)} now)`,
          `${removed.files} removed (${sizeText(removed.bytes)})`,
        ];
        const atLeast = complete ? '' : 'at least ';
        const head = `v${from.version} to v${to.version}: ${atLeast}${counts.join(', ')}`;
        if (items.length === 0) return head;
        const rows = table(items, [
          { head: 'CHANGE', of: (d) => d.change },
          {
            head: 'BEFORE',
            of: (d) => (d.previous_size === null ? '' : sizeText(d.previous_size)),
          },
          { head: 'NOW', of: (d) => (d.size === null ? '' : sizeText(d.size)) },
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
      { flags: '--version <number>', doc: 'only the changes of this version', parse: positive },
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: positive },
    ],
    routes: ['datasetHistory'],
    async run(cli, args, options) {
      const path = textOf(options, 'path');
      const { version, limit } = options;
      const query = {
        limit: Math.min(limitOf(limit), 200),
        ...defined({ path, version: version as number | undefined }),
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
              { head: 'SIZE', of: (h) => (h.size === null ? '' : sizeText(h.size)) },
              { head: 'PATH', of: (h) => h.path },
            ]),
      );
    },
  },
];

/** Parses a version as people write it: 7 or v7. */
function versionNumber(text: string): number {
  const [, digits] = /^v?([1-9]\d{0,14})$/.exec(text) ?? [];
  if (digits === undefined) throw usage(`${text} is not a version`, 'berth dataset versions NAME');
  return Number(digits);
}
