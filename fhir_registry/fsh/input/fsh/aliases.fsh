Alias: $artifact-status = http://hl7.org/fhir/StructureDefinition/artifact-status
Alias: $model-version = https://cuvil.org/fhir/NamingSystem/model-version
Alias: $release = https://cuvil.org/fhir/NamingSystem/release
Alias: $sha3-512 = https://cuvil.org/fhir/NamingSystem/sha3-512
Alias: $sha-256 = https://cuvil.org/fhir/NamingSystem/sha-256
Alias: $deployment = https://cuvil.org/fhir/NamingSystem/deployment
Alias: $key = https://cuvil.org/fhir/NamingSystem/key
Alias: $property = https://cuvil.org/fhir/CodeSystem/model-property
Alias: $version = https://cuvil.org/fhir/CodeSystem/version-kind
Alias: $document = https://cuvil.org/fhir/CodeSystem/evidence-document

Invariant: cuvil-sha3-512
Description: "A SHA3-512 digest is written as 128 hexadecimal digits in lower case."
Severity: #error
Expression: "matches('^[0-9a-f]{128}$')"

Invariant: cuvil-sha-256
Description: "A SHA-256 digest is written as 64 hexadecimal digits in lower case."
Severity: #error
Expression: "matches('^[0-9a-f]{64}$')"

Invariant: cuvil-tensor
Description: "A tensor is written as its name, a colon, a space, and its type and shape, as in image: tensor(float32)[1,1,28,28]."
Severity: #error
Expression: "matches('^.+: tensor\\\\([a-z0-9]+\\\\)\\\\[.*\\\\]$')"
