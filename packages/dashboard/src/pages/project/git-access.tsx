/**
 * The access to a private repository: a deploy key for ssh, or a token for https. Nobody can read
 * the key or the token again.
 */
import { defined } from '@berth/kit/defined';
import { ApiError } from '@berth/wire/client';
import type { Project } from '@berth/wire/project';
import { useState } from 'react';
import { useProjectReasons } from '../../parts/permissions.ts';
import { useApiQuery } from '../../api/queries.ts';
import { Button, Copy } from '../../ui/controls.tsx';
import { Facts } from '../../ui/data.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { Code, Text } from '../../ui/text.tsx';
import { errorOfLast, useApiMutation } from '../../api/mutations.ts';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Command } from '../../parts/command.tsx';
import { fieldErrors, FormProblem, Problem } from '../../parts/problem.tsx';
import { useTaggedProject } from '../../parts/tagged-project.ts';
import { Ago } from '../../parts/time.tsx';

type Props = { project: Project };
const isNone = (error: unknown): boolean => error instanceof ApiError && error.status === 404;

/** The repository address decides whether git uses the key or the token. */
export const GitAccess = ({ project }: Props) => (
  <>
    <DeployKey project={project} />
    <GitToken project={project} />
  </>
);

function DeployKey({ project }: Props) {
  const params = { id: project.id };
  const key = useApiQuery('getDeployKey', { params });
  const reasonAgainst = useProjectReasons(project);
  const create = useApiMutation('createDeployKey');
  const remove = useApiMutation('deleteDeployKey');
  const error = errorOfLast(create, remove);
  return (
    <Panel
      title="Deploy key"
      id="deploy-key"
      actions={<Command words={['deploy-key', 'show', project.name]} />}
    >
      <Column gap="sm">
        <Problem error={error} what="The change of the deploy key" />
        {isNone(key.error) ? (
          <>
            <Text>
              For an address of ssh. Berth makes a pair of keys; add the public key to the
              repository as a deploy key that may read.
            </Text>
            <Row>
              <Button
                reason={reasonAgainst('set_deploy_key')}
                busy={create.busy}
                onClick={() => void create.run({ params })}
              >
                Create a deploy key
              </Button>
            </Row>
          </>
        ) : (
          <QueryBoundary query={key} what="the deploy key">
            {(found) => (
              <>
                <Facts
                  items={[
                    [
                      'Public key',
                      <span key="k">
                        <Code>{found.public_key}</Code>{' '}
                        <Copy text={found.public_key} label="Copy the public key" />
                      </span>,
                    ],
                    ['Fingerprint', <Code key="f">{found.fingerprint}</Code>],
                    ['Created', <Ago key="c" at={found.created_at} />],
                  ]}
                />
                <Row>
                  <Button
                    look="danger"
                    reason={reasonAgainst('delete_deploy_key')}
                    busy={remove.busy}
                    onClick={() => void remove.run({ params })}
                  >
                    Delete the deploy key
                  </Button>
                </Row>
              </>
            )}
          </QueryBoundary>
        )}
      </Column>
    </Panel>
  );
}

function GitToken({ project: shown }: Props) {
  // The ETag makes sure that the token is sent only to the address that the person sees.
  const { project, headers } = useTaggedProject(shown);
  const params = { id: project.id };
  const gitToken = useApiQuery('getGitToken', { params });
  const reasonAgainst = useProjectReasons(project);
  const [token, setToken] = useState('');
  const [username, setUsername] = useState('');
  const put = useApiMutation('putGitToken', () => {
    setToken('');
    setUsername('');
  });
  const remove = useApiMutation('deleteGitToken');
  const errors = fieldErrors(put.error);
  const reason = reasonAgainst('set_git_token') ?? (token === '' ? 'it needs a token' : null);
  return (
    <Panel
      title="Git token"
      id="git-token"
      actions={<Command words={['git-token', 'set', project.name]} />}
    >
      <Column gap="sm">
        {isNone(gitToken.error) ? (
          <Text>
            For an address of https. Only the host of {project.git_url} gets the token; a new
            address with another host deletes it.
          </Text>
        ) : (
          <QueryBoundary query={gitToken} what="the git token">
            {(found) => (
              <>
                <Problem error={remove.error} what="Deleting the git token" />
                <Facts
                  items={[
                    ['Host', <Code key="h">{found.host}</Code>],
                    ['User name', found.username ?? 'the one that the forge accepts'],
                    ['Set', <Ago key="s" at={found.set_at} />],
                    found.set_by === null ? null : ['By', found.set_by],
                  ]}
                />
                <Row>
                  <Button
                    look="danger"
                    reason={reasonAgainst('delete_git_token')}
                    busy={remove.busy}
                    onClick={() => void remove.run({ params })}
                  >
                    Delete the git token
                  </Button>
                </Row>
              </>
            )}
          </QueryBoundary>
        )}
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (reason === null)
              void put.run({
                params,
                body: { token, ...defined({ username: username === '' ? undefined : username }) },
                ...headers,
              });
          }}
        >
          <Column gap="sm">
            <Columns most={2} align="end">
              <TextField
                label="Token"
                secret
                value={token}
                onChange={setToken}
                error={errors['token']}
              />
              <TextField
                label="User name"
                help="empty: the one that the known forges accept"
                value={username}
                onChange={setUsername}
                error={errors['username']}
              />
            </Columns>
            <FormProblem
              error={put.error}
              what="Setting the git token"
              fields={['token', 'username']}
            />
            <Row>
              <Button type="submit" reason={reason} busy={put.busy}>
                Set the git token
              </Button>
            </Row>
          </Column>
        </form>
      </Column>
    </Panel>
  );
}
