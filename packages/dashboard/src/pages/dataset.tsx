import { defined } from '@berth/kit/defined';
import type { Dataset, DatasetChange, DatasetDiff } from '@berth/wire/dataset';
import { sizeText } from '@berth/wire/size-text';
import { useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { useReasons } from '../parts/permissions.ts';
import { useApiQuery, useApiList } from '../api/queries.ts';
import { useApiMutation } from '../api/mutations.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { useAll } from '../parts/attention.ts';
import { Command, Empty } from '../parts/command.tsx';
import { More } from '../parts/more.tsx';
import { useProjectNames } from '../parts/names.ts';
import { dialogError, Problem } from '../parts/problem.tsx';
import { DatasetStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { countText } from '../parts/time-text.ts';
import { Button } from '../ui/controls.tsx';
import { Table } from '../ui/data.tsx';
import { Note } from '../ui/feedback.tsx';
import { Select } from '../ui/fields.tsx';
import { Column, Panel, Row } from '../ui/layout.tsx';
import { Confirm } from '../ui/overlay.tsx';
import { Status } from '../ui/status.tsx';
import { TextField } from '../ui/text-field.tsx';
import { Code, PageLink, Text } from '../ui/text.tsx';

export const DatasetPage = () => {
  const { name } = useParams({ strict: false }) as { name: string };
  const dataset = useApiQuery('getDataset', { params: { id: name } });
  return (
    <QueryBoundary query={dataset} what="the dataset" page>
      {(found) => <Loaded key={found.id} dataset={found} />}
    </QueryBoundary>
  );
};

function Loaded({ dataset }: { dataset: Dataset }) {
  const reasonAgainst = useReasons();
  const [asking, setAsking] = useState(false);
  const scan = useApiMutation('scanDataset');
  const accept = useApiMutation('scanDataset', () => setAsking(false));
  const params = { id: dataset.id };
  const suspicious = dataset.status === 'suspicious';
  return (
    <PageLayout
      title={dataset.name}
      lead={
        <span>
          <DatasetStatus status={dataset.status} />: version {dataset.version ?? 'none yet'},{' '}
          {sizeText(dataset.bytes)} in {countText(dataset.files, 'file')}, folder{' '}
          <Code>{dataset.nfs_path}</Code>
          {dataset.last_scanned_at !== null && (
            <>
              , scanned <Ago at={dataset.last_scanned_at} />
            </>
          )}
        </span>
      }
      actions={
        <Button
          reason={
            reasonAgainst('scan', dataset) ?? (dataset.scanning ? 'a scan is in progress' : null)
          }
          busy={scan.busy}
          onClick={() => void scan.run({ params, body: {} })}
        >
          Scan now
        </Button>
      }
    >
      <Problem error={scan.error} what="The scan" />
      {dataset.problem !== null && (
        <Note
          tone={suspicious ? 'warn' : 'bad'}
          title={
            suspicious ? 'The share looks wrong; nothing of it is used' : 'The share cannot be read'
          }
        >
          <Column gap="xs">
            <Text>{dataset.problem}</Text>
            {suspicious && (
              <>
                <Text>
                  Projects keep the last good version. When the files are back, the next scan ends
                  this state by itself.
                </Text>
                <Row>
                  <Button
                    size="xs"
                    look="danger"
                    reason={reasonAgainst('accept_loss', dataset)}
                    onClick={() => setAsking(true)}
                  >
                    Accept the loss …
                  </Button>
                </Row>
              </>
            )}
          </Column>
        </Note>
      )}
      <Matrix dataset={dataset} />
      <Versions dataset={dataset} />
      <Compare key={`${dataset.id} ${dataset.version ?? 0}`} dataset={dataset} />
      <History dataset={dataset} />
      <Confirm
        open={asking}
        onClose={() => {
          setAsking(false);
          accept.reset();
        }}
        title="Accept the loss?"
        action="Accept"
        danger
        typed={dataset.name}
        busy={accept.busy}
        error={dialogError(accept.error)}
        onConfirm={() => void accept.run({ params, body: { accept_loss: true } })}
      >
        <Text>
          The folder as it is now becomes the next version, with the missing files removed.
        </Text>
      </Confirm>
    </PageLayout>
  );
}

/**
 * Shows "none" only after all pages of the list are read, because a missing page might have rows.
 */
const orNone = (
  list: { hasMore: boolean; query: { data: unknown } },
  links: readonly ReactNode[],
): ReactNode =>
  links.length === 0 && list.query.data !== undefined && !list.hasMore ? (
    <Text tone="quiet" inline>
      none
    </Text>
  ) : (
    links
  );

/** A table of versions, projects and nodes: who runs which version, and where the copies are. */
function Matrix({ dataset }: { dataset: Dataset }) {
  const running = useApiList('listDeployments', {
    query: { status: 'running', dataset_id: dataset.id, limit: 200 },
  });
  const nodes = useAll(useApiList('listNodes', { query: { limit: 200 } }));
  const uses = running.items.flatMap((item) =>
    item.datasets
      .filter(({ dataset_id }) => dataset_id === dataset.id)
      .map((use) => ({ item, use })),
  );
  const copies = nodes.items.flatMap((node) =>
    node.cached
      .filter(({ dataset_id }) => dataset_id === dataset.id)
      .map((copy) => ({ node, copy })),
  );
  const projectName = useProjectNames(uses.map(({ item }) => item.project_id));
  const versions = [
    ...new Set([
      ...uses.map(({ use }) => use.version),
      ...copies.map(({ copy }) => copy.version),
      dataset.version,
    ]),
  ]
    .filter((version) => version !== null)
    .sort((a, b) => b - a);
  return (
    <Panel flush title="Where each version is" id="matrix">
      {versions.length === 0 ? (
        <Empty>No version yet.</Empty>
      ) : (
        <Table
          label="Version, projects and nodes"
          rows={versions}
          id={String}
          cells={[
            {
              head: 'Version',
              rowHead: true,
              cell: (version) => (
                <>
                  {version} {version === dataset.version && <Status mark="ok">newest</Status>}
                </>
              ),
            },
            {
              head: 'Projects',
              cell: (version) =>
                orNone(
                  running,
                  uses
                    .filter(({ use }) => use.version === version)
                    .map(({ item }) => (
                      <span key={item.id}>
                        <PageLink
                          to="/projects/$name"
                          params={{ name: projectName(item.project_id) }}
                          size="sm"
                        >
                          {projectName(item.project_id)}
                        </PageLink>{' '}
                      </span>
                    )),
                ),
            },
            {
              head: 'Nodes',
              cell: (version) =>
                orNone(
                  nodes,
                  copies
                    .filter(({ copy }) => copy.version === version)
                    .map(({ node, copy }) => (
                      <span key={node.id}>
                        <PageLink to="/nodes/$name" params={{ name: node.id }} size="sm">
                          {node.hostname}
                        </PageLink>
                        {copy.pinned === true ? ' (in use) ' : ' '}
                      </span>
                    )),
                ),
            },
          ]}
        />
      )}
      <More list={running}>Show more projects</More>
    </Panel>
  );
}

function Versions({ dataset }: { dataset: Dataset }) {
  const versions = useApiList('datasetVersions', { params: { id: dataset.id } });
  return (
    <Panel
      flush
      title="Versions"
      id="versions"
      actions={<Command words={['dataset', 'versions', dataset.name]} />}
    >
      <QueryBoundary query={versions.query} what="the versions">
        {() => (
          <Table
            label="Versions"
            rows={versions.items}
            id={(row) => String(row.version)}
            cells={[
              { head: 'Version', rowHead: true, cell: (row) => row.version },
              { head: 'Since', cell: (row) => <Ago at={row.created_at} /> },
              { head: 'Files', number: true, cell: (row) => row.files.toLocaleString('en') },
              { head: 'Size', number: true, cell: (row) => sizeText(row.bytes) },
              {
                head: 'Manifest',
                wide: true,
                cell: (row) => <Code>{row.manifest_digest.slice(0, 19)}</Code>,
              },
              {
                head: 'Changes',
                cell: (row) => (
                  <Row gap="xs">
                    <PageLink
                      to="/datasets/$name"
                      params={{ name: dataset.name }}
                      search={{ version: String(row.version) } as never}
                      size="sm"
                    >
                      show
                    </PageLink>
                    {row.version !== dataset.version && dataset.version !== null && (
                      <PageLink
                        to="/datasets/$name"
                        params={{ name: dataset.name }}
                        search={{ from: String(row.version), to: String(dataset.version) } as never}
                        size="sm"
                      >
                        compare with the newest
                      </PageLink>
                    )}
                  </Row>
                ),
              },
            ]}
          />
        )}
      </QueryBoundary>
    </Panel>
  );
}

/** Compares the two versions in the page address. The server reports a version that was removed. */
function Compare({ dataset }: { dataset: Dataset }) {
  const search = useSearch({ strict: false }) as Record<string, string>;
  const navigate = useNavigate();
  const versions = useApiList('datasetVersions', { params: { id: dataset.id } });
  const asked = (name: 'from' | 'to'): string =>
    /^[1-9]\d{0,14}$/.test(search[name] ?? '') ? (search[name] ?? '') : '';
  const [from, to] = [asked('from'), asked('to')];
  const isAsked = from !== '' && to !== '';
  const input = {
    params: { id: dataset.id },
    query: { from: Number(from), to: Number(to), limit: 50 },
  };
  const diff = useApiList('datasetDiff', input, { enabled: isAsked });
  // Each page of the answer contains the totals.
  const totals = (diff.query.data?.pages[0] as DatasetDiff | undefined)?.totals;
  if (dataset.version === null) return null;
  // Offer the versions in the page address even if they are not in the list.
  const numbers = [
    ...new Set([from, to, ...versions.items.map(({ version }) => String(version))]),
  ].filter((text) => text !== '');
  const options = [
    { value: '', label: 'choose' },
    ...numbers
      .sort((a, b) => Number(b) - Number(a))
      .map((value) => ({ value, label: `version ${value}` })),
  ];
  const choose = (name: 'from' | 'to') => (value: string) =>
    void navigate({
      to: '/datasets/$name',
      params: { name: dataset.name },
      search: { ...search, [name]: value === '' ? undefined : value } as never,
    });
  return (
    <Panel
      flush
      title={
        isAsked ? `Difference of version ${from} and version ${to}` : 'Difference of two versions'
      }
      id="difference"
      {...(isAsked
        ? { actions: <Command words={['dataset', 'diff', dataset.name, from, to]} /> }
        : {})}
    >
      <div style={{ padding: '0 16px 12px' }}>
        <Row align="end">
          <Select label="From" value={from} onChange={choose('from')} options={options} />
          <Select label="To" value={to} onChange={choose('to')} options={options} />
          {versions.more !== null && <Button onClick={versions.more}>Load older versions</Button>}
        </Row>
      </div>
      {isAsked && (
        <QueryBoundary query={diff.query} what="the difference">
          {() => (
            <>
              <div role="status" style={{ padding: '0 16px 12px' }}>
                {totals !== undefined && <Text>{diffText(totals)}</Text>}
              </div>
              {diff.items.length > 0 && (
                <Table
                  label="Files that differ"
                  rows={diff.items}
                  id={(row) => `${row.change} ${row.path}`}
                  cells={[
                    { head: 'Path', rowHead: true, cell: (row) => <Code>{row.path}</Code> },
                    { head: 'Change', cell: (row) => <ChangeStatus change={row.change} /> },
                    {
                      head: `Size in ${from}`,
                      number: true,
                      cell: (row) =>
                        row.previous_size === null ? '' : sizeText(row.previous_size),
                    },
                    {
                      head: `Size in ${to}`,
                      number: true,
                      cell: (row) => (row.size === null ? '' : sizeText(row.size)),
                    },
                  ]}
                />
              )}
              {diff.more !== null && <Button onClick={diff.more}>Show more</Button>}
            </>
          )}
        </QueryBoundary>
      )}
    </Panel>
  );
}

export function diffText({ added, modified, removed, complete }: DatasetDiff['totals']): string {
  if (added.files + modified.files + removed.files === 0)
    return 'The two versions have the same files.';
  return [
    complete ? '' : 'At least ',
    `${countText(added.files, 'file')} added (${sizeText(added.bytes)}), `,
    `${modified.files.toLocaleString('en')} modified (${sizeText(modified.previous_bytes)} ` +
      `before, ${sizeText(modified.bytes)} now), `,
    `${removed.files.toLocaleString('en')} removed (${sizeText(removed.bytes)}).`,
    complete ? '' : ' There are more differences than Berth lists.',
  ].join('');
}

const CHANGE_MARKS = { removed: 'bad', added: 'ok', modified: 'warn' } as const;
const ChangeStatus = ({ change }: { change: DatasetChange }) => (
  <Status mark={CHANGE_MARKS[change]}>{change}</Status>
);

function History({ dataset }: { dataset: Dataset }) {
  const search = useSearch({ strict: false }) as Record<string, string>;
  const navigate = useNavigate();
  const path = search['path'] ?? '';
  const version = /^\d+$/.test(search['version'] ?? '') ? Number(search['version']) : undefined;
  const [typed, setTyped] = useState(path);
  const rows = useApiList('datasetHistory', {
    params: { id: dataset.id },
    query: {
      limit: 100,
      ...defined({ path: path === '' ? undefined : path, version }),
    },
  });
  return (
    <Panel
      flush
      title={
        version === undefined
          ? 'History of paths'
          : `Difference of version ${version} to the one before`
      }
      id="history"
    >
      <form
        style={{ padding: '0 16px 12px' }}
        onSubmit={(event) => {
          event.preventDefault();
          void navigate({
            to: '/datasets/$name',
            params: { name: dataset.name },
            search: {
              ...defined({
                path: typed === '' ? undefined : typed,
                version: version === undefined ? undefined : String(version),
              }),
            } as never,
          });
        }}
      >
        <Row align="end">
          <TextField
            label="File, or folder with a trailing /"
            value={typed}
            onChange={setTyped}
            mono
          />
          <Button type="submit">Show</Button>
          {version !== undefined && (
            <PageLink to="/datasets/$name" params={{ name: dataset.name }} size="sm">
              all versions
            </PageLink>
          )}
        </Row>
      </form>
      <QueryBoundary query={rows.query} what="the history">
        {() =>
          rows.items.length === 0 ? (
            <Empty>No changes.</Empty>
          ) : (
            <>
              <Table
                label="Changes of files"
                rows={rows.items}
                id={(row) => `${row.version} ${row.path}`}
                cells={[
                  { head: 'Path', rowHead: true, cell: (row) => <Code>{row.path}</Code> },
                  {
                    head: 'Change',
                    cell: (row) => <ChangeStatus change={row.change} />,
                  },
                  { head: 'Version', number: true, cell: (row) => row.version },
                  {
                    head: 'Size',
                    number: true,
                    cell: (row) => (row.size === null ? '' : sizeText(row.size)),
                  },
                  { head: 'At', wide: true, cell: (row) => <Ago at={row.at} /> },
                ]}
              />
              {rows.more !== null && <Button onClick={rows.more}>Show more</Button>}
            </>
          )
        }
      </QueryBoundary>
    </Panel>
  );
}
