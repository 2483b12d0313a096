/** The tab "Domains": the project's address at Berth, and its custom domains. */
import type { DnsState, ProjectDomain } from '@berth/wire/domain';
import type { Project } from '@berth/wire/project';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiQuery } from '../../api/queries.ts';
import { removeColumn } from '../../parts/change-column.tsx';
import { Command, Empty } from '../../parts/command.tsx';
import { useProjectReasons } from '../../parts/permissions.ts';
import { dialogError, FormProblem, listError } from '../../parts/problem.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { CertificateStatus } from '../../parts/states.tsx';
import { notReadReason, type TaggedProject, useTaggedProject } from '../../parts/tagged-project.ts';
import { Button } from '../../ui/controls.tsx';
import { type Cell, Facts, Table } from '../../ui/data.tsx';
import { Column, Panel, Row } from '../../ui/layout.tsx';
import { Confirm } from '../../ui/overlay.tsx';
import { type Mark, Status } from '../../ui/status.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { SiteLink, Text } from '../../ui/text.tsx';

export function Domains({ project }: { project: Project }) {
  const tagged = useTaggedProject(project);
  return (
    <Column>
      <Address project={project} />
      <AddDomain tagged={tagged} />
      <CustomDomains tagged={tagged} />
    </Column>
  );
}

const Address = ({ project }: { project: Project }) => (
  <Panel title="Address" id="address">
    <Facts
      items={[
        [
          'Berth’s address',
          project.url === null ? (
            'none: the project has no process web'
          ) : (
            <SiteLink key="a" url={project.url} />
          ),
        ],
        project.certificate === null
          ? null
          : ['Certificate', <CertificateStatus key="c" certificate={project.certificate} />],
      ]}
    />
  </Panel>
);

function AddDomain({ tagged }: { tagged: TaggedProject }) {
  const { project, headers } = tagged;
  const [domain, setDomain] = useState('');
  const add = useApiMutation('patchProject', () => setDomain(''));
  const reason =
    useProjectReasons(project)('edit_project') ??
    notReadReason(tagged) ??
    (domain === '' ? 'it needs a domain' : null);
  const save = (): void => {
    const domains = [...project.domains, domain];
    void add.run({ params: { id: project.id }, body: { domains }, ...headers });
  };
  return (
    <Panel title="Add a domain" id="add">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (reason === null) save();
        }}
      >
        <Column gap="sm">
          <TextField
            label="Domain"
            value={domain}
            onChange={setDomain}
            placeholder="www.example.org"
            error={listError(add.error, 'domains')?.message}
          />
          <FormProblem error={add.error} what="Saving" fields={['domains']} />
          <Row>
            <Button type="submit" look="main" reason={reason} busy={add.busy}>
              Add
            </Button>
            <Command
              words={[
                'domain',
                'add',
                domain === '' ? 'www.example.org' : domain,
                '--project',
                project.name,
              ]}
            />
          </Row>
        </Column>
      </form>
    </Panel>
  );
}

const DNS_MARKS: Record<DnsState, Mark> = {
  ok: 'ok',
  partly: 'warn',
  elsewhere: 'warn',
  missing: 'warn',
  unknown: 'off',
};

const DOMAIN_COLUMNS: Cell<ProjectDomain>[] = [
  { head: 'Domain', rowHead: true, cell: (row) => <SiteLink url={row.url} /> },
  {
    head: 'DNS',
    cell: ({ dns }) => (
      <>
        <Status mark={DNS_MARKS[dns.state]}>{dns.state}</Status>
        {dns.problem !== null && <Text size="xs">{dns.problem}</Text>}
      </>
    ),
  },
  { head: 'Certificate', cell: (row) => <DomainCertificate domain={row} /> },
];

function DomainCertificate({ domain: { certificate, published } }: { domain: ProjectDomain }) {
  if (certificate === null)
    return <Text tone="quiet">{published ? 'not checked yet' : 'not published yet'}</Text>;
  return (
    <>
      <CertificateStatus certificate={certificate} />
      {certificate.problem !== null && <Text size="xs">{certificate.problem}</Text>}
    </>
  );
}

function CustomDomains({ tagged: { project, headers, isRead } }: { tagged: TaggedProject }) {
  const domains = useApiQuery('projectDomains', { params: { id: project.id } });
  /** The domain in the open dialog; null if the dialog is closed. */
  const [removing, setRemoving] = useState<string | null>(null);
  const remove = useApiMutation('patchProject', () => setRemoving(null));
  const removeDomain = (): void => {
    if (!isRead) return;
    const others = project.domains.filter((domain) => domain !== removing);
    void remove.run({ params: { id: project.id }, body: { domains: others }, ...headers });
  };
  const removal = removeColumn<ProjectDomain>({
    nameOf: ({ domain }) => domain,
    reason: useProjectReasons(project)('edit_project'),
    onClick: ({ domain }) => setRemoving(domain),
  });
  return (
    <Panel
      flush
      title="Custom domains"
      id="domains"
      actions={<Command words={['domain', 'list', project.name]} />}
    >
      <QueryBoundary query={domains} what="the domains">
        {({ items }) =>
          items.length === 0 ? (
            <Empty>No custom domains.</Empty>
          ) : (
            <Table
              label="Custom domains"
              rows={items}
              id={(row) => row.domain}
              cells={[...DOMAIN_COLUMNS, removal]}
            />
          )
        }
      </QueryBoundary>
      <Confirm
        open={removing !== null}
        onClose={() => {
          setRemoving(null);
          remove.reset();
        }}
        title={`Remove ${removing ?? ''}?`}
        action="Remove"
        danger
        busy={remove.busy}
        error={dialogError(remove.error)}
        onConfirm={removeDomain}
      >
        <Text>
          Its visitors get no answer there any more. When the domain comes back, they sign in again.
        </Text>
      </Confirm>
    </Panel>
  );
}
