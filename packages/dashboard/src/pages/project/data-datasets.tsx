/** The datasets that a project mounts. */
import { type Dataset, MOUNT_MODES, type MountMode } from '@berth/wire/dataset';
import type { Project } from '@berth/wire/project';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiList } from '../../api/queries.ts';
import { removeColumn } from '../../parts/change-column.tsx';
import { Command, Empty } from '../../parts/command.tsx';
import { DatasetLink } from '../../parts/links.tsx';
import { useProjectReasons } from '../../parts/permissions.ts';
import { FormProblem, listError, Problem } from '../../parts/problem.tsx';
import { DatasetStatus } from '../../parts/states.tsx';
import { notReadReason, type TaggedProject } from '../../parts/tagged-project.ts';
import { Button } from '../../ui/controls.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Select } from '../../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';

type Use = Project['datasets'][number];
type DatasetOf = (use: Use) => Dataset | undefined;

export function Datasets({ tagged }: { tagged: TaggedProject }) {
  const { items } = useApiList('listDatasets', { query: { limit: 200 } });
  const byId = new Map(items.map((dataset) => [dataset.id, dataset]));
  const used = new Set(tagged.project.datasets.map(({ dataset_id }) => dataset_id));
  const unused = items.filter(({ id }) => !used.has(id));
  return (
    <>
      <UsedDatasets tagged={tagged} datasetOf={({ dataset_id }) => byId.get(dataset_id)} />
      {unused.length > 0 && <AddDataset tagged={tagged} unused={unused} />}
    </>
  );
}

const useColumns = (datasetOf: DatasetOf): Cell<Use>[] => [
  {
    head: 'Dataset',
    rowHead: true,
    cell: (use) => <DatasetLink name={datasetOf(use)?.name ?? use.dataset_id} />,
  },
  { head: 'Mode', cell: (use) => use.mode },
  { head: 'Newest version', number: true, cell: (use) => datasetOf(use)?.version ?? '' },
  {
    head: 'State',
    cell: (use) => {
      const dataset = datasetOf(use);
      return dataset === undefined ? null : <DatasetStatus status={dataset.status} />;
    },
  },
];

function UsedDatasets({ tagged, datasetOf }: { tagged: TaggedProject; datasetOf: DatasetOf }) {
  const { project, headers, isRead } = tagged;
  const removeDataset = useApiMutation('patchProject');
  const withoutDataset = (id: string): void => {
    if (!isRead) return;
    const datasets = project.datasets.filter(({ dataset_id }) => dataset_id !== id);
    void removeDataset.run({ params: { id: project.id }, body: { datasets }, ...headers });
  };
  const remove = removeColumn<Use>({
    nameOf: (use) => datasetOf(use)?.name ?? use.dataset_id,
    label: 'Remove from the project',
    reason: useProjectReasons(project)('edit_project'),
    onClick: (use) => withoutDataset(use.dataset_id),
  });
  return (
    <Panel
      flush
      title="Datasets"
      id="datasets"
      actions={<Command words={['project', 'show', project.name]} />}
    >
      <Problem error={removeDataset.error} what="Removing the dataset" />
      {project.datasets.length === 0 ? (
        <Empty words={['dataset', 'list']}>
          The project uses no datasets. This command lists those of the platform:
        </Empty>
      ) : (
        <Table
          label="Datasets"
          rows={project.datasets}
          id={(use) => use.dataset_id}
          cells={[...useColumns(datasetOf), remove]}
        />
      )}
    </Panel>
  );
}

/**
 * The default mode. A mode that lets the container change files must be chosen for each dataset.
 */
const SAFE_MODE: MountMode = 'dependency';

function AddDataset({ tagged, unused }: { tagged: TaggedProject; unused: readonly Dataset[] }) {
  const { project, headers } = tagged;
  const [dataset, setDataset] = useState('');
  const [mode, setMode] = useState(SAFE_MODE);
  const addDataset = useApiMutation('patchProject', () => {
    setDataset('');
    setMode(SAFE_MODE);
  });
  const reason =
    useProjectReasons(project)('edit_project') ??
    notReadReason(tagged) ??
    (dataset === '' ? 'choose a dataset' : null);
  const save = (): void => {
    const datasets = [...project.datasets, { dataset_id: dataset, mode }];
    void addDataset.run({ params: { id: project.id }, body: { datasets }, ...headers });
  };
  return (
    <Panel title="Add a dataset" id="add-dataset">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (reason === null) save();
        }}
      >
        <Column gap="sm">
          <Columns most={2} align="end">
            <Select
              label="Dataset"
              value={dataset}
              onChange={setDataset}
              options={[
                { value: '', label: 'choose' },
                ...unused.map(({ id, name }) => ({ value: id, label: name })),
              ]}
              error={listError(addDataset.error, 'datasets')?.message}
            />
            <Select
              label="Mode"
              help="dependency: a copy that the container only reads; readwrite: the share itself"
              value={mode}
              onChange={setMode}
              options={MOUNT_MODES.map((value) => ({ value, label: value }))}
            />
          </Columns>
          <FormProblem error={addDataset.error} what="Adding the dataset" fields={['datasets']} />
          <Row>
            <Button type="submit" reason={reason} busy={addDataset.busy}>
              Add the dataset
            </Button>
          </Row>
        </Column>
      </form>
    </Panel>
  );
}
