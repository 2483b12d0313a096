/** The volumes of a project: folders on its node that persist across deployments. */
import type { VolumeUse } from '@berth/wire/project';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { removeColumn } from '../../parts/change-column.tsx';
import { Empty } from '../../parts/command.tsx';
import { useProjectReasons } from '../../parts/permissions.ts';
import { FormProblem, listError, Problem } from '../../parts/problem.tsx';
import { notReadReason, type TaggedProject } from '../../parts/tagged-project.ts';
import { Button } from '../../ui/controls.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { Code, Text } from '../../ui/text.tsx';

export const Volumes = ({ tagged }: { tagged: TaggedProject }) => (
  <>
    <UsedVolumes tagged={tagged} />
    <AddVolume tagged={tagged} />
  </>
);

const VOLUME_COLUMNS: Cell<VolumeUse>[] = [
  { head: 'Volume', rowHead: true, cell: (row) => row.name },
  { head: 'Path in the container', cell: (row) => <Code>{row.mount_path}</Code> },
];

function UsedVolumes({ tagged: { project, headers, isRead } }: { tagged: TaggedProject }) {
  const removeVolume = useApiMutation('patchProject');
  const withoutVolume = (removed: string): void => {
    if (!isRead) return;
    const volumes = project.volumes.filter(({ name }) => name !== removed);
    void removeVolume.run({ params: { id: project.id }, body: { volumes }, ...headers });
  };
  const remove = removeColumn<VolumeUse>({
    nameOf: ({ name }) => name,
    label: 'Remove from the project',
    reason: useProjectReasons(project)('edit_project'),
    onClick: ({ name }) => withoutVolume(name),
  });
  return (
    <Panel flush title="Volumes" id="volumes">
      <Problem error={removeVolume.error} what="Removing the volume" />
      {project.volumes.length === 0 ? (
        <Empty>No volumes. A volume is a folder on the node that outlives deployments.</Empty>
      ) : (
        <Table
          label="Volumes"
          rows={project.volumes}
          id={(row) => row.name}
          cells={[...VOLUME_COLUMNS, remove]}
        />
      )}
    </Panel>
  );
}

/** Assigns an error to a field: an error about the path to the path, others to the name. */
function volumeErrors(error: unknown): { name?: string; mount_path?: string } {
  const wrong = listError(error, 'volumes');
  if (wrong === undefined) return {};
  return wrong.field.endsWith('.mount_path')
    ? { mount_path: wrong.message }
    : { name: wrong.message };
}

function AddVolume({ tagged }: { tagged: TaggedProject }) {
  const { project, headers } = tagged;
  const [name, setName] = useState('');
  const [path, setPath] = useState('');
  const addVolume = useApiMutation('patchProject', () => {
    setName('');
    setPath('');
  });
  const errors = volumeErrors(addVolume.error);
  const reason =
    useProjectReasons(project)('edit_project') ??
    notReadReason(tagged) ??
    (name === '' || path === '' ? 'it needs a name and a path' : null);
  const save = (): void => {
    const volumes = [...project.volumes, { name, mount_path: path }];
    void addVolume.run({ params: { id: project.id }, body: { volumes }, ...headers });
  };
  return (
    <Panel title="Add a volume" id="add-volume">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (reason === null) save();
        }}
      >
        <Column gap="sm">
          <Columns most={2} align="end">
            <TextField
              label="Volume"
              value={name}
              onChange={setName}
              placeholder="uploads"
              mono
              error={errors.name}
            />
            <TextField
              label="Path in the container"
              value={path}
              onChange={setPath}
              placeholder="/var/uploads"
              mono
              error={errors.mount_path}
            />
          </Columns>
          <FormProblem error={addVolume.error} what="Adding the volume" fields={['volumes']} />
          <Row>
            <Button type="submit" reason={reason} busy={addVolume.busy}>
              Add the volume
            </Button>
            <Text tone="quiet">
              A folder on the node of the project. It takes effect with the next deployment.
            </Text>
          </Row>
        </Column>
      </form>
    </Panel>
  );
}
