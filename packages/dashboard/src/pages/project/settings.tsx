/** The tab "Settings": the project's fields, the access to its repository, and its deletion. */
import { defined } from '@berth/kit/defined';
import { ApiError } from '@berth/wire/client';
import type { Project } from '@berth/wire/project';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiQueryWithTag } from '../../api/queries.ts';
import { Command } from '../../parts/command.tsx';
import { originText } from '../../parts/config-origin.ts';
import { useProjectReasons } from '../../parts/permissions.ts';
import { dialogError, fieldErrors, FormProblem } from '../../parts/problem.tsx';
import { FORM, patchOf } from '../../parts/project-fields.ts';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Button } from '../../ui/controls.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Column, Panel, Row } from '../../ui/layout.tsx';
import { Confirm } from '../../ui/overlay.tsx';
import { Text } from '../../ui/text.tsx';
import { labelOf } from '../../parts/field-words.ts';
import { GitAccess } from './git-access.tsx';
import { SettingsConflict, useSettingsDraft } from './settings-draft.tsx';
import { SettingsFields } from './settings-fields.tsx';

export function Settings({ project }: { project: Project }) {
  const tagged = useApiQueryWithTag('getProject', { params: { id: project.id } });
  return (
    <QueryBoundary query={tagged} what="the settings">
      {({ answer, etag }) => (
        <Column>
          <SettingsForm key={project.id} project={answer} etag={etag} />
          <GitAccess project={answer} />
          <DeleteProject project={answer} etag={etag} />
        </Column>
      )}
    </QueryBoundary>
  );
}

type TaggedProps = { project: Project; etag: string | null };

const ifMatch = (etag: string | null) =>
  defined({ headers: etag === null ? undefined : { 'if-match': etag } });

const FIELD_NAMES = FORM.map(({ name }) => name);

function SettingsForm({ project, etag }: TaggedProps) {
  const settings = useSettingsDraft(project, etag);
  const { draft, start, changed, theirs } = settings;
  const save = useApiMutation('patchProject', settings.saved);
  /** True if the conflict note already shows the text of the error. */
  const isToldByConflict =
    theirs.length > 0 && save.error instanceof ApiError && save.error.code === 'changed_meanwhile';
  const reason = useProjectReasons(project)('edit_project');
  const origin = originText(project);
  const submit = (): void => {
    const body = patchOf(changed, draft, start.draft);
    void save.run({ params: { id: project.id }, body, ...ifMatch(settings.tag) });
  };
  return (
    <Panel
      title="Settings"
      id="settings"
      actions={<Command words={['project', 'show', project.name]} />}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (reason === null && changed.length > 0) submit();
        }}
      >
        <Column>
          {origin !== null && (
            <Note>
              {project.config?.keys.map(labelOf).join(', ')} {origin}. Change these settings in that
              file, and deploy.
            </Note>
          )}
          <SettingsConflict
            project={project}
            settings={settings}
            onChoice={(next) => {
              settings.continueWith(next);
              save.reset();
            }}
          />
          <SettingsFields
            project={project}
            draft={draft}
            onChange={settings.setDraft}
            errors={fieldErrors(save.error)}
            canLook={reason === null}
          />
          {!isToldByConflict && (
            <FormProblem error={save.error} what="Saving" fields={FIELD_NAMES} />
          )}
          <Row>
            <Button
              type="submit"
              look="main"
              reason={reason ?? (changed.length === 0 ? 'nothing is changed' : null)}
              busy={save.busy}
            >
              Save
            </Button>
            {changed.length > 0 && (
              <Text tone="quiet">
                Changed: {changed.map(labelOf).join(', ')}. Takes effect with the next deployment.
              </Text>
            )}
          </Row>
        </Column>
      </form>
    </Panel>
  );
}

function DeleteProject({ project, etag }: TaggedProps) {
  const navigate = useNavigate();
  const [isAsking, setIsAsking] = useState(false);
  const remove = useApiMutation('deleteProject', () => void navigate({ to: '/projects' }));
  const reason =
    useProjectReasons(project)('delete_project') ??
    (project.deleting ? 'it is being deleted already' : null);
  return (
    <Panel title="Delete the project" id="delete">
      <Column gap="sm">
        <Text>
          Its containers are removed. If it ran, its prefix and its domains stay reserved for
          DOMAIN_QUARANTINE (7 days by default), also if you create it again. Volumes stay on their
          node until an admin deletes them.
        </Text>
        <Row>
          <Button look="danger" reason={reason} onClick={() => setIsAsking(true)}>
            Delete …
          </Button>
          <Command words={['project', 'delete', project.name]} />
        </Row>
      </Column>
      <Confirm
        open={isAsking}
        onClose={() => {
          setIsAsking(false);
          remove.reset();
        }}
        title={`Delete ${project.name}?`}
        action="Delete"
        danger
        typed={project.name}
        busy={remove.busy}
        error={dialogError(remove.error)}
        onConfirm={() => void remove.run({ params: { id: project.id }, ...ifMatch(etag) })}
      >
        <Text>This cannot be undone.</Text>
      </Confirm>
    </Panel>
  );
}
