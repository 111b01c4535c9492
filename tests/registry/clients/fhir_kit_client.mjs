// What a hospital does with fhir-kit-client, unmodified: node fhir_kit_client.mjs BASE DIGEST TOKEN...
// Prints one JSON object; a refusal that was expected is part of it, any other error ends with 1.
import { Client } from 'fhir-kit-client';

const [baseUrl, digest, ...tokens] = process.argv.slice(2);
const client = new Client({ baseUrl });
const writer = () => ({ headers: { Authorization: `Bearer ${tokens.shift()}` } });

async function refusal(promise) {
  try {
    await promise;
    return null;
  } catch (error) {
    const { status, data } = error.response;
    return { status, type: data.resourceType, text: data.issue[0].details.text };
  }
}

async function ids(searchParams) {
  const bundle = await client.search({ resourceType: 'DeviceDefinition', searchParams });
  return (bundle.entry ?? []).map((entry) => entry.resource.id);
}

async function all(resourceType, searchParams) {
  const found = [];
  let pages = 0;
  for (let bundle = await client.search({ resourceType, searchParams }); bundle; bundle = await client.nextPage({ bundle })) {
    pages += 1;
    found.push(...(bundle.entry ?? []).map((entry) => entry.resource.id));
  }
  return { pages, found };
}

const said = {};
const metadata = await client.capabilityStatement();
said.fhirVersion = metadata.fhirVersion;
said.byIdentifier = await ids({ identifier: digest });
said.byPurpose = await ids({ 'model-purpose:contains': 'made for tests' });
said.byInput = await ids({ 'input-profile:contains': 'float32)[1\\,1\\,8\\,8' });
said.active = (await ids({ 'artifact-status': 'active' })).length;
const [id] = said.byIdentifier;
const model = await client.read({ resourceType: 'DeviceDefinition', id });
const status = 'http://hl7.org/fhir/StructureDefinition/artifact-status';
said.status = model.modifierExtension.find((extension) => extension.url === status).valueCode;
said.version = (await client.vread({ resourceType: 'DeviceDefinition', id, version: '1' })).meta.versionId;
said.history = (await client.history({ resourceType: 'DeviceDefinition', id })).entry.length;
said.verified = (await client.operation({ name: 'verify', resourceType: 'DeviceDefinition', id, method: 'GET' })).issue[0].severity;
const documents = await client.search({ resourceType: 'DocumentReference', searchParams: { type: 'release' } });
const { url } = documents.entry[0].resource.content[0].attachment;
const binary = await client.read({ resourceType: 'Binary', id: url.split('/')[1] });
said.evidence = binary.data;
said.missing = await refusal(client.read({ resourceType: 'DeviceDefinition', id: 'none' }));
said.misspelt = await refusal(client.search({ resourceType: 'DeviceDefinition', searchParams: { identifer: 'x' } }));

if (tokens.length > 0) {
  said.refused = await refusal(client.create({ resourceType: 'Organization', body: { resourceType: 'Organization', name: 'K' } }));
  const made = await client.create({ resourceType: 'Organization', body: { resourceType: 'Organization', name: 'K' }, options: writer() });
  const changed = { ...made, name: 'K2' };
  const options = writer();
  options.headers['If-Match'] = `W/"${made.meta.versionId}"`;
  said.updated = (await client.update({ resourceType: 'Organization', id: made.id, body: changed, options })).meta.versionId;
  const stale = writer();
  stale.headers['If-Match'] = `W/"${made.meta.versionId}"`;
  said.conflict = await refusal(client.update({ resourceType: 'Organization', id: made.id, body: changed, options: stale }));
  const jsonPatch = [{ op: 'replace', path: '/name', value: 'K3' }];
  said.patched = (await client.patch({ resourceType: 'Organization', id: made.id, jsonPatch, options: writer() })).name;
  const entry = [...Array(7).keys()].map((number) => ({
    resource: { resourceType: 'Organization', name: `Page ${number}` },
    request: { method: 'POST', url: 'Organization' },
  }));
  const body = { resourceType: 'Bundle', type: 'transaction', entry };
  said.transaction = (await client.transaction({ body, options: writer() })).entry.map((item) => item.response.status);
  said.pages = await all('Organization', { name: 'page', _count: 3, _sort: 'name' });
  await client.delete({ resourceType: 'Organization', id: made.id, options: writer() });
  said.gone = await refusal(client.read({ resourceType: 'Organization', id: made.id }));
}
process.stdout.write(JSON.stringify(said));
