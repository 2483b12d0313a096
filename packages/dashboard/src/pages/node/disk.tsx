/** The disk of a node: its usage, the next eviction, its datasets and volumes. */
import type { CachedDataset, Node, NodeDiskView } from '@berth/wire/node';
import { sizeText } from '@berth/wire/size-text';
import { Command, Empty } from '../../parts/command.tsx';
import { DiskBar } from '../../parts/disk.tsx';
import { DatasetLink, ProjectLink } from '../../parts/links.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Ago } from '../../parts/time.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Column, Panel } from '../../ui/layout.tsx';
import { Status } from '../../ui/status.tsx';
import { Text } from '../../ui/text.tsx';

type DiskQuery = { data: NodeDiskView | undefined; error: unknown; refetch: () => unknown };

export const DiskPanel = ({ node, disk }: { node: Node; disk: DiskQuery }) => (
  <Panel title="Disk" id="disk" actions={<Command words={['node', 'disk', node.hostname]} />}>
    <Column gap="sm">
      {node.disk === null ? (
        <Text tone="quiet">The agent has not reported its disk</Text>
      ) : (
        <DiskBar disk={node.disk} />
      )}
      <QueryBoundary query={disk} what="the preview of evictions">
        {(view) => <Evictions view={view} />}
      </QueryBoundary>
    </Column>
  </Panel>
);

const EVICTION_COLUMNS: Cell<NodeDiskView['evict'][number]>[] = [
  { head: 'Evicted next', rowHead: true, cell: (row) => row.name },
  { head: 'Kind', cell: (row) => row.kind.replace('_', ' ') },
  { head: 'Size', number: true, cell: (row) => sizeText(row.bytes) },
  { head: 'Why', cell: (row) => row.why },
];

const COPY_COLUMNS: Cell<NonNullable<NodeDiskView['copies']>[number]>[] = [
  { head: 'Kept', rowHead: true, cell: (row) => `${row.name} v${row.version}` },
  { head: 'Copy for', cell: (row) => <ProjectLink name={row.project} /> },
  {
    head: 'Size',
    number: true,
    cell: (row) => (row.bytes === null ? 'not copied yet' : sizeText(row.bytes)),
  },
];

const freeText = (bytes: number): string =>
  bytes < 0 ? `exceeded by ${sizeText(-bytes)}` : `${sizeText(bytes)} of it free`;

const Evictions = ({ view }: { view: NodeDiskView }) => (
  <>
    <Text>
      Budget of datasets, images and build cache: {sizeText(view.budget_bytes)},{' '}
      {freeText(view.free_bytes)}.
    </Text>
    {view.unavailable !== undefined && <Text tone="quiet">{view.unavailable}</Text>}
    {(view.copies ?? []).length > 0 && (
      <Table
        label="Copies that projects want here"
        rows={view.copies ?? []}
        id={(row) => `${row.dataset_id} ${row.version} ${row.project}`}
        cells={COPY_COLUMNS}
      />
    )}
    {view.evict.length > 0 && (
      <Table
        label="What would be evicted, in order"
        rows={view.evict}
        id={(row) => `${row.kind} ${row.name} ${row.bytes}`}
        cells={EVICTION_COLUMNS}
      />
    )}
  </>
);

const DATASET_COLUMNS: Cell<CachedDataset>[] = [
  {
    head: 'Dataset',
    rowHead: true,
    cell: (row) => <DatasetLink name={row.name ?? row.dataset_id} />,
  },
  { head: 'Version', number: true, cell: (row) => row.version },
  { head: 'Size', number: true, cell: (row) => sizeText(row.bytes) },
  { head: 'In use', cell: (row) => (row.pinned === true ? 'yes' : 'no') },
];

export const CachedDatasets = ({ node }: { node: Node }) => (
  <Panel flush title="Datasets on its disk" id="cached">
    {node.cached.length === 0 ? (
      <Empty>None.</Empty>
    ) : (
      <Table
        label="Datasets on its disk"
        rows={node.cached}
        id={(row) => `${row.dataset_id} ${row.version}`}
        cells={DATASET_COLUMNS}
      />
    )}
  </Panel>
);

type NodeVolume = NodeDiskView['volumes'][number];

const VOLUME_COLUMNS: Cell<NodeVolume>[] = [
  { head: 'Volume', rowHead: true, cell: (row) => row.name },
  {
    head: 'Project',
    cell: (row) =>
      row.kept_of_deleted ? `${row.project} (deleted)` : <ProjectLink name={row.project} />,
  },
  {
    head: 'Size',
    number: true,
    cell: (row) => (row.bytes === null ? 'not counted' : sizeText(row.bytes)),
  },
  { head: 'State', cell: (row) => <VolumeStatus missingSince={row.missing_since ?? null} /> },
];

const VolumeStatus = ({ missingSince }: { missingSince: string | null }) =>
  missingSince === null ? (
    <Status mark="ok">on the disk</Status>
  ) : (
    <Status mark="bad">
      missing, last seen <Ago at={missingSince} />
    </Status>
  );

export const NodeVolumes = ({ node, disk }: { node: Node; disk: DiskQuery }) => (
  <Panel
    flush
    title="Volumes on its disk"
    id="volumes"
    actions={<Command words={['node', 'volumes', node.hostname]} />}
  >
    <QueryBoundary query={disk} what="the volumes">
      {({ volumes }) =>
        volumes.length === 0 ? (
          <Empty>None.</Empty>
        ) : (
          <Table
            label="Volumes on its disk"
            rows={volumes}
            id={(row) => `${row.project} ${row.name} ${row.kept_of_deleted}`}
            cells={VOLUME_COLUMNS}
          />
        )
      }
    </QueryBoundary>
  </Panel>
);
