import { defined } from '@berth/kit/defined';
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import type { RepositoryFound } from '@berth/wire/repository-look';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { useReasons } from '../parts/permissions.ts';
import { call } from '../api/client.ts';
import { queries, useApiList } from '../api/queries.ts';
import { useApiMutation } from '../api/mutations.ts';
import { Command } from '../parts/command.tsx';
import { fieldErrors, FormProblem, problemText } from '../parts/problem.tsx';
import {
  completed,
  LookStatus,
  proposedDockerfile,
  useRepositoryLook,
} from '../parts/repository.tsx';
import { Button } from '../ui/controls.tsx';
import { ManySelect, NumberField, Switch } from '../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../ui/layout.tsx';
import { TextField } from '../ui/text-field.tsx';

/** The fields at which the form shows an error. */
const SHOWN = [
  'git_url',
  'name',
  'domain_prefix',
  'branch',
  'dockerfile_path',
  'container_port',
  'auth_required',
  'datasets',
];

/** The name of the repository, as a DNS label. */
export const nameOf = (address: string): string =>
  (/([^/:]+?)(?:\.git)?\/*$/.exec(address)?.[1] ?? '')
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 63);

export const NewProjectPage = () => {
  const navigate = useNavigate();
  const reason = useReasons()('create_project', null);
  const datasets = useApiList('listDatasets', { query: { limit: 200 } });
  const [git, setGit] = useState('');
  const [name, setName] = useState<string | null>(null);
  const [prefix, setPrefix] = useState<string | null>(null);
  // Null until the person types: then the form has what a builder found, or the default.
  const [typedBranch, setBranch] = useState<string | null>(null);
  const [typedDockerfile, setDockerfile] = useState<string | null>(null);
  const [typedPort, setPort] = useState<{ port: number | null } | null>(null);
  const look = useRepositoryLook();
  const [auth, setAuth] = useState(false);
  const [uses, setUses] = useState<string[]>([]);
  const shownName = name ?? nameOf(git);
  const shownPrefix = prefix ?? shownName;
  const found = look.state?.url === git ? look.found : null;
  /** The values of the person come first, then those that the builder found, then the defaults. */
  const valuesWith = (answer: RepositoryFound | null) => {
    const branch = typedBranch ?? answer?.branch ?? PROJECT_DEFAULTS.branch;
    const dockerfile =
      typedDockerfile ??
      (answer === null ? undefined : proposedDockerfile(answer)?.path) ??
      PROJECT_DEFAULTS.dockerfile_path;
    const ports = answer?.dockerfiles.find(({ path }) => path === dockerfile)?.ports ?? [];
    return {
      branch,
      dockerfile,
      ports,
      port: typedPort === null ? (ports[0] ?? PROJECT_DEFAULTS.container_port) : typedPort.port,
    };
  };
  const { branch, dockerfile, ports, port } = valuesWith(found);
  const create = useApiMutation('createProject');
  const errors = fieldErrors(create.error);

  /** From the click until the next page: two requests. */
  const [busy, setBusy] = useState(false);
  async function submit(): Promise<void> {
    setBusy(true);
    await createAndDeploy().finally(() => setBusy(false));
  }
  async function createAndDeploy(): Promise<void> {
    const git_url = completed(git);
    setGit(git_url);
    // Somebody who pastes an address and presses the button gets the branch and the port of the
    // repository too.
    const isTyped = typedBranch !== null && typedDockerfile !== null && typedPort !== null;
    const values = valuesWith(
      isTyped ? found : await look.ask(git_url, typedBranch === '' ? null : typedBranch),
    );
    const project = await create.run({
      body: {
        name: shownName,
        git_url,
        domain_prefix: shownPrefix,
        branch: values.branch,
        dockerfile_path: values.dockerfile,
        ...defined({ container_port: values.port ?? undefined }),
        auth_required: auth,
        datasets: uses.map((dataset_id) => ({ dataset_id, mode: 'dependency' as const })),
      },
    });
    if (project === null) return;
    const deployed = await call('createDeployment', { params: { id: project.id }, body: {} }).then(
      ({ id }) => ({ id }),
      (error: unknown) => ({ problem: problemText(error) }),
    );
    await queries.invalidateQueries();
    if ('id' in deployed)
      return void navigate({ to: '/deployments/$id', params: { id: deployed.id } });
    // The project exists now, so its page shows why the first deployment did not begin.
    const state = (present: object) => ({ ...present, notDeployed: deployed.problem });
    void navigate({ to: '/projects/$name', params: { name: project.name }, state });
  }
  return (
    <PageLayout
      title="New project"
      lead={
        'Berth builds the Dockerfile of a git repository and publishes it at an address of its ' +
        'own.'
      }
    >
      <Panel>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (reason === null && !busy) void submit();
          }}
        >
          <Column>
            <TextField
              label="Git address"
              placeholder="https://git.example.org/team/shop.git"
              value={git}
              onChange={setGit}
              mono
              error={errors['git_url']}
              required
              autoFocus
              onBlur={() => {
                const whole = completed(git);
                setGit(whole);
                void look.ask(whole, typedBranch);
              }}
            />
            <LookStatus look={look} url={git} />
            <Columns most={2}>
              <TextField
                label="Name"
                help="lower-case letters, digits and hyphens"
                value={shownName}
                onChange={setName}
                mono
                error={errors['name']}
                required
              />
              <TextField
                label="Domain prefix"
                help="the first part of its address"
                value={shownPrefix}
                onChange={setPrefix}
                mono
                error={errors['domain_prefix']}
                required
              />
              <TextField
                label="Branch"
                value={branch}
                onChange={setBranch}
                mono
                error={errors['branch']}
                suggestions={found?.branches ?? []}
                onBlur={() =>
                  void (
                    typedBranch !== null &&
                    typedBranch !== found?.branch &&
                    look.ask(git, typedBranch === '' ? null : typedBranch)
                  )
                }
              />
              <TextField
                label="Dockerfile"
                value={dockerfile}
                onChange={setDockerfile}
                mono
                error={errors['dockerfile_path']}
                suggestions={found?.dockerfiles.map(({ path }) => path) ?? []}
              />
              <NumberField
                label="Container port"
                help={
                  ports.length > 1
                    ? `the Dockerfile exposes ${ports.join(', ')}`
                    : 'the port on which the application listens'
                }
                value={port}
                onChange={(value) => setPort({ port: value })}
                error={errors['container_port']}
              />
            </Columns>
            <Switch
              label="Require Auth: visitors must sign in"
              value={auth}
              onChange={setAuth}
              error={errors['auth_required']}
            />
            {datasets.items.length > 0 && (
              <ManySelect
                label="Datasets"
                help="in place before the container starts, read-only"
                value={uses}
                onChange={setUses}
                options={datasets.items.map(({ id, name: label }) => ({ value: id, label }))}
                error={errors['datasets']}
              />
            )}
            <FormProblem error={create.error} what="Creating the project" fields={SHOWN} />
            <Row>
              <Button type="submit" look="main" reason={reason} busy={busy}>
                Create and deploy
              </Button>
              <Command
                words={[
                  'project',
                  'create',
                  shownName === '' ? 'shop' : shownName,
                  ...(git === '' ? [] : ['--git-url', git]),
                ]}
              />
            </Row>
          </Column>
        </form>
      </Panel>
    </PageLayout>
  );
};
