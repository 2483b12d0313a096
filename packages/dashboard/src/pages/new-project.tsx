import type { Project } from '@berth/wire/project';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { call } from '../api/client.ts';
import { useApiMutation } from '../api/mutations.ts';
import { queries } from '../api/queries.ts';
import { Command } from '../parts/command.tsx';
import { PageLayout } from '../parts/page-layout.tsx';
import { useReasons } from '../parts/permissions.ts';
import { fieldErrors, FormProblem, problemText } from '../parts/problem.tsx';
import { completed, useRepositoryLook } from '../parts/repository.tsx';
import { Button } from '../ui/controls.tsx';
import { Column, Panel, Row } from '../ui/layout.tsx';
import {
  bodyOf,
  EMPTY_DRAFT,
  needsProposals,
  type NewProjectDraft,
  valuesOf,
} from './new-project/draft.ts';
import { FIELDS, foundAt, NewProjectFields } from './new-project/fields.tsx';

const LEAD =
  'Berth builds the Dockerfile of a git repository and publishes it at an address of its own.';

export const NewProjectPage = () => (
  <PageLayout title="New project" lead={LEAD}>
    <Panel>
      <NewProjectForm />
    </Panel>
  </PageLayout>
);

function NewProjectForm() {
  const deployAndOpen = useDeployAndOpen();
  const reason = useReasons()('create_project', null);
  const [draft, setDraft] = useState(EMPTY_DRAFT);
  const change = (changed: Partial<NewProjectDraft>): void =>
    setDraft((current) => ({ ...current, ...changed }));
  const look = useRepositoryLook();
  const create = useApiMutation('createProject');
  const errors = fieldErrors(create.error);
  /**
   * True from the click until the next page opens, while one repository look and two requests run.
   */
  const [busy, setBusy] = useState(false);

  async function createAndDeploy(): Promise<void> {
    const gitUrl = completed(draft.gitUrl);
    change({ gitUrl });
    // Wait for the proposals, because a person can paste an address and press the button at once.
    const findings = needsProposals(draft)
      ? await look.ask(gitUrl, draft.branch === '' ? null : draft.branch)
      : foundAt(look, draft.gitUrl);
    const project = await create.run({ body: bodyOf({ ...draft, gitUrl }, findings) });
    if (project !== null) await deployAndOpen(project);
  }
  const submit = (): void => {
    setBusy(true);
    void createAndDeploy().finally(() => setBusy(false));
  };
  const { name } = valuesOf(draft, null);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (reason === null && !busy) submit();
      }}
    >
      <Column>
        <NewProjectFields draft={draft} onChange={change} errors={errors} look={look} />
        <FormProblem error={create.error} what="Creating the project" fields={FIELDS} />
        <Row>
          <Button type="submit" look="main" reason={reason} busy={busy}>
            Create and deploy
          </Button>
          <Command
            words={[
              'project',
              'create',
              name === '' ? 'shop' : name,
              ...(draft.gitUrl === '' ? [] : ['--git-url', draft.gitUrl]),
            ]}
          />
        </Row>
      </Column>
    </form>
  );
}

/**
 * Opens the first deployment of a new project. If the deployment does not begin, opens the project
 * page, which shows why.
 */
function useDeployAndOpen(): (project: Project) => Promise<void> {
  const navigate = useNavigate();
  return async ({ id, name }) => {
    const deployment = await call('createDeployment', { params: { id }, body: {} }).then(
      (answer) => ({ id: answer.id }),
      (error: unknown) => ({ problem: problemText(error) }),
    );
    await queries.invalidateQueries();
    if ('id' in deployment)
      return void navigate({ to: '/deployments/$id', params: { id: deployment.id } });
    const state = (present: object) => ({ ...present, notDeployed: deployment.problem });
    void navigate({ to: '/projects/$name', params: { name }, state });
  };
}
