/** The fields of the form for a new project. */
import type { RepositoryFound } from '@berth/wire/repository-look';
import { completed, type Look, LookStatus } from '../../parts/repository.tsx';
import { useApiList } from '../../api/queries.ts';
import { ManySelect, NumberField, Switch } from '../../ui/fields.tsx';
import { Columns } from '../../ui/layout.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { type NewProjectDraft, valuesOf } from './draft.ts';

/** Fields whose errors the form shows beside the field. */
export const FIELDS = [
  'git_url',
  'name',
  'domain_prefix',
  'branch',
  'dockerfile_path',
  'container_port',
  'auth_required',
  'datasets',
];

type FieldsProps = {
  draft: NewProjectDraft;
  onChange: (changed: Partial<NewProjectDraft>) => void;
  errors: Readonly<Record<string, string>>;
  look: Look;
};
export const NewProjectFields = (props: FieldsProps) => (
  <>
    <GitUrlField {...props} />
    <LookStatus look={props.look} url={props.draft.gitUrl} />
    <SourceFields {...props} />
    <Switch
      label="Require Auth: visitors must sign in"
      value={props.draft.requiresAuth}
      onChange={(requiresAuth) => props.onChange({ requiresAuth })}
      error={props.errors['auth_required']}
    />
    <DatasetsField {...props} />
  </>
);

function GitUrlField({ draft, onChange, errors, look }: FieldsProps) {
  const lookAtRepository = (): void => {
    const gitUrl = completed(draft.gitUrl);
    onChange({ gitUrl });
    void look.ask(gitUrl, draft.branch);
  };
  return (
    <TextField
      label="Git address"
      placeholder="https://git.example.org/team/shop.git"
      value={draft.gitUrl}
      onChange={(gitUrl) => onChange({ gitUrl })}
      mono
      error={errors['git_url']}
      required
      autoFocus
      onBlur={lookAtRepository}
    />
  );
}

/** Returns the result of the repository look if it belongs to the address in the form. */
export const foundAt = (look: Look, gitUrl: string): RepositoryFound | null =>
  look.state?.url === gitUrl ? look.found : null;

function SourceFields({ draft, onChange, errors, look }: FieldsProps) {
  const findings = foundAt(look, draft.gitUrl);
  const values = valuesOf(draft, findings);
  const lookAtBranch = (): void => {
    if (draft.branch === null || draft.branch === findings?.branch) return;
    void look.ask(draft.gitUrl, draft.branch === '' ? null : draft.branch);
  };
  return (
    <Columns most={2}>
      <TextField
        label="Name"
        help="lower-case letters, digits and hyphens"
        value={values.name}
        onChange={(name) => onChange({ name })}
        mono
        error={errors['name']}
        required
      />
      <TextField
        label="Domain prefix"
        help="the first part of its address"
        value={values.prefix}
        onChange={(prefix) => onChange({ prefix })}
        mono
        error={errors['domain_prefix']}
        required
      />
      <TextField
        label="Branch"
        value={values.branch}
        onChange={(branch) => onChange({ branch })}
        mono
        error={errors['branch']}
        suggestions={findings?.branches ?? []}
        onBlur={lookAtBranch}
      />
      <TextField
        label="Dockerfile"
        value={values.dockerfile}
        onChange={(dockerfile) => onChange({ dockerfile })}
        mono
        error={errors['dockerfile_path']}
        suggestions={findings?.dockerfiles.map(({ path }) => path) ?? []}
      />
      <NumberField
        label="Container port"
        help={
          values.ports.length > 1
            ? `the Dockerfile exposes ${values.ports.join(', ')}`
            : 'the port on which the application listens'
        }
        value={values.port}
        onChange={(value) => onChange({ port: { value } })}
        error={errors['container_port']}
      />
    </Columns>
  );
}

function DatasetsField({ draft, onChange, errors }: FieldsProps) {
  const datasets = useApiList('listDatasets', { query: { limit: 200 } });
  if (datasets.items.length === 0) return null;
  return (
    <ManySelect
      label="Datasets"
      help="in place before the container starts, read-only"
      value={draft.datasets}
      onChange={(ids) => onChange({ datasets: ids })}
      options={datasets.items.map(({ id, name }) => ({ value: id, label: name }))}
      error={errors['datasets']}
    />
  );
}
